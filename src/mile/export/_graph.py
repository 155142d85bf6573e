"""A graph of ONNX operators, built by writing arithmetic: what the exporter's parts are written with."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET, ML_OPSET = 17, 2  # of 2022: runtimes of the last years have them
_IR_VERSION = 8  # what belongs to that opset
_ML = "ai.onnx.ml"
INT64, FLOAT, DOUBLE = int(TensorProto.INT64), int(TensorProto.FLOAT), int(TensorProto.DOUBLE)
STRING, BOOL = int(TensorProto.STRING), int(TensorProto.BOOL)
Attribute = int | float | str | Sequence[int] | Sequence[str] | onnx.GraphProto


@dataclass(frozen=True, eq=False)
class Value:
    """A result in a graph; arithmetic with numbers, arrays and other values adds operators to it."""

    graph: "Graph"
    name: str

    def __add__(self, other: "Operand") -> "Value":
        return self.graph.op("Add", self, other)

    def __radd__(self, other: "Operand") -> "Value":
        return self.graph.op("Add", other, self)

    def __sub__(self, other: "Operand") -> "Value":
        return self.graph.op("Sub", self, other)

    def __rsub__(self, other: "Operand") -> "Value":
        return self.graph.op("Sub", other, self)

    def __mul__(self, other: "Operand") -> "Value":
        return self.graph.op("Mul", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: "Operand") -> "Value":
        return self.graph.op("Div", self, other)

    def __rtruediv__(self, other: "Operand") -> "Value":
        return self.graph.op("Div", other, self)

    def cast(self, kind: int) -> "Value":
        """Return the value in another type."""
        return self.graph.op("Cast", self, to=kind)

    @property
    def double(self) -> "Value":
        """The value in float64."""
        return self.cast(DOUBLE)

    @property
    def single(self) -> "Value":
        """The value in float32."""
        return self.cast(FLOAT)


Operand = Value | float | np.ndarray


@dataclass(eq=False)
class Graph:
    """Operators in the order in which they were added. Plain numbers and arrays become float64 constants.

    A graph that is the body of a loop has a parent: it may use the parent's values, and shares its names.
    """

    parent: "Graph | None" = None
    reserved: set[str] = field(default_factory=set)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    _numbers: count = field(default_factory=count)

    def fresh(self) -> str:
        """Return a name that nothing else has."""
        if self.parent is not None:
            return self.parent.fresh()
        return next(name for name in (f"mile.{number}" for number in self._numbers) if name not in self.reserved)

    @property
    def depth(self) -> int:
        """How many loops it is in."""
        return 0 if self.parent is None else 1 + self.parent.depth

    def body(self) -> "Graph":
        """Return an empty graph for the body of a loop."""
        return Graph(parent=self)

    def input(self, name: str, kind: int, shape: Sequence[int | str] | None) -> Value:
        """Add an input."""
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return Value(self, name)

    def output(self, value: Value, kind: int, shape: Sequence[int | str] | None, name: str | None = None) -> None:
        """Add an output, under another name if one is given."""
        name = name or self.fresh()
        self.nodes.append(helper.make_node("Identity", [value.name], [name]))
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def constant(self, array: np.ndarray | Sequence[str]) -> Value:
        """Add an array, or a list of texts."""
        name, given = self.fresh(), np.asarray(array)
        if given.dtype.kind in "OU":
            tensor = TensorProto(name=name, data_type=STRING, dims=given.shape)
            tensor.string_data.extend(str(text).encode() for text in given)
            self.constants.append(tensor)
        else:
            self.constants.append(numpy_helper.from_array(np.ascontiguousarray(given).reshape(given.shape), name))
        return Value(self, name)

    def integers(self, *numbers: int) -> Value:
        """Add a list of whole numbers, as axes and shapes are given."""
        return self.constant(np.array(numbers, np.int64))

    def op(self, kind: str, *operands: Operand, **attributes: Attribute) -> Value:
        """Add an operator with one result."""
        return self._add(kind, operands, "", attributes)

    def ml(self, kind: str, *operands: Operand, **attributes: Attribute) -> Value:
        """Add an operator of ONNX-ML with one result."""
        return self._add(kind, operands, _ML, attributes)

    def _add(self, kind: str, operands: Iterable[Operand], domain: str, attributes: Mapping[str, Attribute]) -> Value:
        operands = list(operands)
        graphs = [operand.graph for operand in operands if isinstance(operand, Value)]
        inner = max([self, *graphs], key=lambda graph: graph.depth)  # a loop's body sees values outside of it
        names = [inner.value(operand).name for operand in operands]
        result = self.fresh()
        node = helper.make_node(kind, names, [result], domain=domain)
        node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        inner.nodes.append(node)
        return Value(inner, result)

    def value(self, operand: Operand) -> Value:
        """Return a value; numbers and arrays become constants."""
        return operand if isinstance(operand, Value) else self.constant(np.asarray(operand, np.float64))

    def loop(self, most: int, states: Sequence[Value], body: "Graph") -> list[Value]:
        """Add a loop: its body takes a count, a flag and the states, and gives a flag and the states."""
        names = [self.fresh() for _ in states]
        inputs = [self.integers(most).name, self.constant(np.array(True)).name, *(state.name for state in states)]
        self.nodes.append(helper.make_node("Loop", inputs, names, body=body.built("loop")))
        return [Value(self, name) for name in names]

    def built(self, name: str) -> onnx.GraphProto:
        """Return the graph."""
        return helper.make_graph(self.nodes, name, self.inputs, self.outputs, self.constants)

    def model(self, name: str, description: str, properties: Mapping[str, str]) -> onnx.ModelProto:
        """Return the model that a file holds, checked."""
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(_ML, ML_OPSET)]
        model = helper.make_model(
            self.built(name),
            opset_imports=opsets,
            ir_version=_IR_VERSION,
            producer_name="mile",
            doc_string=description,
        )
        helper.set_model_props(model, dict(properties))
        onnx.checker.check_model(model, full_check=True)
        return model
