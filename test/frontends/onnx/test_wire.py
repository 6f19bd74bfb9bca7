"""The reader of the file format against protobuf itself, on whole and on broken files."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import array, info, model

from headrace.frontends.onnx import wire


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field(number: int, payload: bytes) -> bytes:
    return varint(number << 3 | wire.BYTES) + varint(len(payload)) + payload


def test_a_model_is_read_without_its_weights() -> None:
    big, small = array(64, 8), array(3)
    nodes = [helper.make_node("MatMul", ["x", "big"], ["m"]), helper.make_node("Add", ["m", "small"], ["y"])]
    proto = model(nodes, [info("x", array(2, 64))], ["y"], {"big": big, "small": small})
    data = memoryview(proto.SerializeToString())
    found, tensors = wire.parse(data)
    assert list(found.graph.node) == list(proto.graph.node)
    assert list(found.graph.input) == list(proto.graph.input)
    assert found.opset_import == proto.opset_import and not found.graph.initializer
    (head, span), (whole, nothing) = tensors
    assert (head.name, list(head.dims), head.raw_data) == ("big", [64, 8], b"")
    assert span is not None and bytes(data[span.start : span.stop]) == big.tobytes()
    assert nothing is None and whole == proto.graph.initializer[1]


def test_a_payload_in_two_pieces_is_left_to_protobuf() -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[80])
    half = np.arange(40, dtype="<f4").tobytes()
    content = tensor.SerializeToString() + field(wire.TENSOR_FLOAT_DATA, half) * 2
    data = memoryview(field(wire.MODEL_GRAPH, field(wire.GRAPH_INITIALIZER, content)))
    ((found, span),) = wire.parse(data)[1]
    assert span is None and len(found.float_data) == 80


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "no graph"),
        (field(wire.MODEL_GRAPH, b"") * 2, "more than one graph"),
        (field(wire.MODEL_GRAPH, b"abc")[:-1], "more than there are"),
        (b"\x80", "inside a number"),
        (b"\xff" * 11, "64 bits"),
        (b"\x00\x01", "no field number"),
        (b"\x0b\x01", "wire type 3"),
        (b"\x09\x01", "more than there are"),
        (
            field(wire.MODEL_GRAPH, varint(wire.GRAPH_INITIALIZER << 3 | wire.BYTES) + varint(2**40)),
            "more than there are",
        ),
    ],
)
def test_malformed_messages(data: bytes, reason: str) -> None:
    with pytest.raises(wire.WireError, match=reason):
        wire.parse(memoryview(data))


def test_every_prefix_of_a_file_is_refused_or_parsed() -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"])], [info("x", array(2))], ["y"], {"w": array(40)})
    data = proto.SerializeToString()
    for end in range(len(data)):
        try:
            wire.parse(memoryview(data[:end]))
        except wire.WireError:
            continue
        except Exception as error:
            assert type(error).__name__ == "DecodeError"


def test_the_classes_are_those_of_onnx() -> None:
    assert wire.protobuf().TensorProto is type(numpy_helper.from_array(array(2)))
