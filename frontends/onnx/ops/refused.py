"""ONNX ops that are known and not supported: why, and what to do."""

from __future__ import annotations

# Op types, why, what to do.
_GROUPS = (
    (
        "If Loop Scan",
        "its branches or body are chosen or repeated at run time; `tensor` programs have no control flow yet",
        "export the model with the branch resolved or the loop unrolled",
    ),
    (
        "NonZero Unique Compress NonMaxSuppression",
        "the shape of its result depends on data; shapes are static in Headrace",
        "move it out of the model",
    ),
    (
        "SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap "
        "SplitToSequence ConcatFromSequence Optional OptionalGetElement OptionalHasElement",
        "sequences, optionals and maps are not tensors",
        "export the model with tensors only",
    ),
    (
        "StringConcat StringNormalizer StringSplit RegexFullMatch TfIdfVectorizer ImageDecoder",
        "strings and files are not tensors of numbers",
        "do this before the model",
    ),
    (
        "LSTM GRU RNN",
        "recurrent layers are not supported yet",
        "export the cell unrolled, or one step with its state as input",
    ),
    (
        "QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearConv QLinearMatMul ConvInteger MatMulInteger",
        "quantized arithmetic is not supported yet",
        "export the float model",
    ),
    (
        "Resize Upsample GridSample AffineGrid RoiAlign MaxRoiPool",
        "resampling is not supported yet",
        "do this outside of the model",
    ),
    ("DFT STFT MelWeightMatrix", "signal processing is not supported yet", "do this before the model"),
    ("BitShift", "shifts are not supported yet", "multiply or divide by a power of two"),
    ("Det", "determinants are not supported", "compute them outside of the model"),
)

REASONS = {op_type: (why, fix) for op_types, why, fix in _GROUPS for op_type in op_types.split()}
