"""ONNX ops that are known and not supported: why, and what to do."""

from __future__ import annotations

_CONTROL = "its branches or body are chosen or repeated at run time; `tensor` programs have no control flow yet"
_CONTROL_FIX = "export the model with the branch resolved or the loop unrolled"
_DYNAMIC = "the shape of its result depends on data; shapes are static in Headrace"
_SEQUENCE = "sequences, optionals and maps are not tensors"
_STRING = "strings are not tensors of numbers"
_RANDOM = "random numbers are not supported"
_RECURRENT = "recurrent layers are not supported yet"
_QUANTIZED = "quantized arithmetic is not supported yet"
_RESAMPLE = "resampling is not supported yet"
_SIGNAL = "signal processing is not supported yet"

REASONS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("If", "Loop", "Scan"), (_CONTROL, _CONTROL_FIX)),
    **dict.fromkeys(("NonZero", "Unique", "Compress", "NonMaxSuppression"), (_DYNAMIC, "move it out of the model")),
    **dict.fromkeys(
        (
            "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength",
            "SequenceMap", "SplitToSequence", "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement",
        ),
        (_SEQUENCE, "export the model with tensors only"),
    ),
    **dict.fromkeys(
        ("StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch", "TfIdfVectorizer", "ImageDecoder"),
        (_STRING, "do this before the model"),
    ),
    **dict.fromkeys(
        ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"),
        (_RANDOM, "give the random numbers as an input"),
    ),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), (_RECURRENT, "export the cell unrolled, or one step with its state as input")),
    **dict.fromkeys(
        (
            "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger",
            "MatMulInteger",
        ),
        (_QUANTIZED, "export the float model"),
    ),
    **dict.fromkeys(("Resize", "Upsample", "GridSample", "AffineGrid", "RoiAlign", "MaxRoiPool"), (_RESAMPLE, "")),
    **dict.fromkeys(("DFT", "STFT", "MelWeightMatrix"), (_SIGNAL, "do this before the model")),
    "TopK": ("sorting is not supported yet", "for the largest element alone use ArgMax and ReduceMax"),
    "BitShift": ("shifts are not supported yet", "multiply or divide by a power of two"),
    "Det": ("determinants are not supported", ""),
}  # fmt: skip
