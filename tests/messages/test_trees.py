"""Trees of tensors, numbers and strings as bytes, and back."""

import json
import math
import struct
from contextlib import suppress

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from fedtailor.messages.digests import digest
from fedtailor.messages.trees import Stored, has_objects, pack, restore, tensors_of, unpack

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def same(a: object, b: object) -> bool:
    """Equal to the last bit, and of the same types; a tuple may have become a list."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and raw(a) == raw(b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        both_nan = isinstance(b, float) and math.isnan(a) and math.isnan(b)
        return both_nan or (type(b) is float and struct.pack("d", a) == struct.pack("d", b))
    return type(a) is type(b) and a == b


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    shape = draw(st.lists(st.integers(0, 3), max_size=4))
    dtype = draw(st.sampled_from(DTYPES))
    size = math.prod(shape)
    if dtype == torch.bool:
        tensor = torch.tensor(draw(st.lists(st.booleans(), min_size=size, max_size=size)), dtype=torch.bool)
    else:  # any bits at all: nan with a payload, infinities, -0.0, subnormal numbers
        width = size * torch.empty((), dtype=dtype).element_size()
        bits = torch.tensor(list(draw(st.binary(min_size=width, max_size=width))), dtype=torch.uint8)
        tensor = bits.view(dtype)
    tensor = tensor.reshape(shape)
    return tensor.transpose(0, -1) if len(shape) > 1 and draw(st.booleans()) else tensor


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | tensors()
keys = st.text(max_size=4) | st.sampled_from(["$tensor", "$pairs", "$object", "$", "1"]) | st.integers(-3, 3)
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)


def test_the_bytes_are_those_of_safetensors() -> None:
    kinds = [*DTYPES, torch.uint16, torch.uint32, torch.uint64]
    tensors = [torch.ones(shape, dtype=dtype) for dtype in kinds for shape in ((), (0, 2), (3, 5))]
    outline = json.dumps({'"\\é': [{"$tensor": str(i)} for i in range(len(tensors))]}, separators=(",", ":"))
    named = {str(i): tensor for i, tensor in enumerate(tensors)}
    assert pack({'"\\é': tensors}) == safetensors.torch.save(named, metadata={"tree": outline})


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},  # a gap, and beyond the end
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},  # bytes of no tensor at the end
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [-1, -2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [0, 2**80], "data_offsets": [0, 0]},
        {"dtype": "F32", "shape": [2**61], "data_offsets": [0, 2**63]},
        {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]},
        {"dtype": ["F32"], "shape": [2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0]},
        {"dtype": "F32", "shape": 2, "data_offsets": [0, 8]},
        "F32",
    ],
)
def test_tensors_that_do_not_fit_their_bytes_are_refused(entry: object) -> None:
    header = json.dumps({"__metadata__": {"tree": '{"$tensor":"0"}'}, "0": entry}).encode()
    with pytest.raises(ValueError, match="damaged bytes"):
        unpack(len(header).to_bytes(8, "little") + header + bytes(8))


def test_tensors_that_share_bytes_are_refused() -> None:
    entry = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    header = json.dumps({"__metadata__": {"tree": "[]"}, "0": entry, "1": entry}).encode()
    with pytest.raises(ValueError, match="damaged bytes"):
        unpack(len(header).to_bytes(8, "little") + header + bytes(4))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trees)
def test_any_tree_comes_back_bit_for_bit_and_always_as_the_same_bytes(tree: object) -> None:
    data = pack(tree)
    assert same(tree, unpack(data))
    assert pack(tree) == data
    assert pack(unpack(data)) == data


@pytest.mark.parametrize("number", [0.1, -0.0, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 2**200, -(2**63)])
def test_a_number_keeps_its_bits_and_its_type(number: float) -> None:
    assert same(number, unpack(pack(number)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (5,), (2, 3, 4, 5)], ids=str)
def test_a_tensor_keeps_dtype_shape_and_bits(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.arange(math.prod(shape)).reshape(shape).to(dtype)
    assert same(tensor, unpack(pack([tensor]))[0])


def test_strides_do_not_matter_and_come_back_contiguous() -> None:
    plain = torch.randn(2, 3, 4, 5)
    variants = [
        plain,
        plain.contiguous(memory_format=torch.channels_last),
        plain.transpose(1, 3).clone().transpose(1, 3),
    ]
    assert len({pack({"w": tensor}) for tensor in variants}) == 1
    assert unpack(pack(variants[1])).is_contiguous()


def test_views_of_one_storage_and_one_tensor_twice_come_back_apart() -> None:
    base = torch.arange(6.0)
    back = unpack(pack({"base": base, "view": base[2:4], "step": base[::2], "again": base}))
    assert same(back, {"base": base, "view": base[2:4], "step": base[::2], "again": base})
    back["base"].zero_()
    assert back["again"].sum() == 15
    assert back["view"].sum() == 5


def test_unpacked_tensors_do_not_share_memory_with_the_bytes() -> None:
    data = pack(torch.ones(4))
    unpack(data).zero_()
    assert unpack(data).sum() == 4


def test_unpacked_tensors_are_aligned_so_that_kernels_take_the_same_path_everywhere() -> None:
    tree = unpack(pack([torch.ones(size) for size in range(1, 30)]))
    assert {tensor.data_ptr() % 64 for tensor in tree} == {0}


def test_packing_a_parameter_leaves_gradients_behind_and_the_original_alone() -> None:
    weight = nn.Parameter(torch.ones(2))
    back = unpack(pack(weight))
    assert not back.requires_grad
    assert weight.requires_grad


class Counter:
    """Something of an author's own with a state."""

    def __init__(self) -> None:
        self.count, self.seen = 0, {3: torch.zeros(2)}

    def state_dict(self) -> dict[str, object]:
        return {"count": self.count, "seen": self.seen}

    def load_state_dict(self, state: dict) -> None:
        self.count, self.seen = state["count"], state["seen"]


def test_objects_with_a_state_are_restored_into_the_ones_that_were_built() -> None:
    layer, counter = nn.Linear(3, 2), Counter()
    adam = torch.optim.Adam(layer.parameters(), lr=0.1)
    for _ in range(3):
        adam.zero_grad()
        layer(torch.ones(4, 3)).square().sum().backward()
        adam.step()
    counter.count, counter.seen = 7, {5: torch.full((2,), 2.0)}
    data = pack({"net": layer, "parts": {"adam": adam}, "many": [counter, 1]})

    fresh_layer, fresh_counter = nn.Linear(3, 2), Counter()
    fresh_adam = torch.optim.Adam(fresh_layer.parameters(), lr=0.5)
    fresh = {"net": fresh_layer, "parts": {"adam": fresh_adam}, "many": [fresh_counter, 0]}
    state = restore(fresh, unpack(data))

    assert state["net"] is fresh_layer
    assert state["parts"]["adam"] is fresh_adam
    assert state["many"] == [fresh_counter, 1]
    assert fresh_counter.count == 7
    assert same(fresh_counter.seen, counter.seen)
    for one, optimiser in ((layer, adam), (fresh_layer, fresh_adam)):
        optimiser.zero_grad()
        one(torch.ones(4, 3)).square().sum().backward()
        optimiser.step()
    assert same(dict(layer.state_dict()), dict(fresh_layer.state_dict()))
    assert pack(state["parts"]) == pack({"adam": adam})


def test_objects_built_in_a_tuple_are_restored() -> None:
    counter, fresh = Counter(), Counter()
    counter.count = 4
    restore({"pair": (fresh, 0)}, unpack(pack({"pair": (counter, 0)})))
    assert fresh.count == 4


def test_what_was_stored_wins_over_what_was_built_and_plain_values_need_nothing_built() -> None:
    assert restore({"a": 1, "gone": 2}, {"a": 5, "new": [1, 2]}) == {"a": 5, "new": [1, 2]}


@pytest.mark.parametrize("built", [{}, {"agents": []}, {"agents": [3]}])
def test_an_object_that_was_not_built_is_an_error_that_names_it(built: dict) -> None:
    with pytest.raises(TypeError, match=r"agents\[0\]"):
        restore(built, unpack(pack({"agents": [Counter()]})))


def test_a_stored_object_that_waits_is_packed_again_as_it_is() -> None:
    data = pack({"net": nn.Linear(2, 2)})
    tree = unpack(data)
    assert isinstance(tree["net"], Stored)
    assert pack(tree) == data


@pytest.mark.parametrize(
    ("tree", "waits"),
    [({"a": [1, {"b": Stored({})}]}, True), ([Stored({})], True), ({"a": [1, {"b": 2}]}, False), (3, False)],
)
def test_a_tree_knows_whether_it_waits_for_objects(tree: object, waits: bool) -> None:
    assert has_objects(tree) is waits


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ({1, 2}, "set"),
        (b"bytes", "bytes"),
        (1j, "complex"),
        (np.zeros(2), "ndarray"),
        (np.int64(3), "int64"),
        (object(), "object"),
        (len, "builtin_function_or_method"),
    ],
)
def test_a_value_that_cannot_be_packed_is_named_with_its_place(value: object, name: str) -> None:
    with pytest.raises(TypeError, match=rf"state\['a'\]\[1\]\[2\] holds a {name}"):
        pack({"a": [0, {2: value}]})


@pytest.mark.parametrize("key", [1.5, None, (1, 2)])
def test_a_key_that_cannot_be_packed_is_named_with_its_place(key: object) -> None:
    with pytest.raises(TypeError, match=r"state\['a'\]: a key"):
        pack({"a": {key: 1}})


@pytest.mark.parametrize(
    "tensor",
    [torch.zeros(2, dtype=torch.complex128), torch.eye(2).to_sparse()],
    ids=["complex", "sparse"],
)
def test_a_tensor_the_format_does_not_know_is_named_with_its_place(tensor: torch.Tensor) -> None:
    with pytest.raises(TypeError, match=r"state\['a'\]"):
        pack({"a": tensor})


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="damaged"):
        unpack(data)


GOOD = pack({"w": torch.arange(12.0).reshape(3, 4), "n": [1, 2.5, "x"], 3: {"deep": None}})


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
def test_one_wrong_byte_gives_a_value_error_or_a_tree_and_nothing_else(place: int, flip: int) -> None:
    damaged = bytearray(GOOD)
    damaged[place] ^= flip
    with suppress(ValueError):
        unpack(bytes(damaged))
    assert digest(bytes(damaged)) != digest(GOOD)


@pytest.mark.parametrize("length", [0, 4, 8, 40, len(GOOD) - 1])
def test_truncated_bytes_are_refused(length: int) -> None:
    with pytest.raises(ValueError, match="damaged"):
        unpack(GOOD[:length])


@pytest.mark.parametrize(
    "outline",
    [
        '{"$tensor":"9"}',
        '{"$pairs":5}',
        '{"$pairs":[[1]]}',
        '{"$pairs":[[[],1]]}',
        "[" * 100_000,
        "[" * 70 + "]" * 70,
        '[{"$tensor":"0"},{"$tensor":"0"}]',
        '{"$pairs":[[null,1]]}',
        "nonsense",
    ],
)
def test_a_tree_that_pack_would_not_write_is_refused(outline: str) -> None:
    data = safetensors.torch.save({"0": torch.zeros(1)}, metadata={"tree": outline})
    with pytest.raises(ValueError, match="damaged"):
        unpack(data)


def test_a_header_over_the_limit_is_refused_before_it_is_read() -> None:
    assert same(unpack(GOOD, 10_000), unpack(GOOD))
    with pytest.raises(ValueError, match="limit is 100"):
        unpack(GOOD, 100)


def test_a_tree_that_could_not_be_unpacked_is_not_packed() -> None:
    deep: list = []
    for _ in range(70):
        deep = [deep]
    with pytest.raises(TypeError, match="nested too deeply"):
        pack(deep)


def test_all_tensors_of_a_tree_are_found() -> None:
    tree = {
        "a": [torch.zeros(1), {"b": torch.ones(1)}],
        "net": nn.Linear(1, 1),
        "s": Stored({"c": torch.ones(2)}),
        "n": 3,
    }
    assert [where for where, _ in tensors_of(tree)] == ["a", "a/b", "net/weight", "net/bias", "s/c"]


def test_a_file_of_tensors_without_a_tree_is_refused() -> None:
    with pytest.raises(ValueError, match="damaged"):
        unpack(safetensors.torch.save({"0": torch.zeros(1)}))


def test_a_pickle_is_refused_and_not_run(tmp_path) -> None:
    import pickle

    class Trap:
        def __reduce__(self):
            return open, (str(tmp_path / "sprung"), "w")

    data = pickle.dumps(Trap())
    for attempt in (data, GOOD[:8] + data, len(data).to_bytes(8, "little") + data):
        with pytest.raises(ValueError, match="damaged"):
            unpack(attempt)
    assert not (tmp_path / "sprung").exists()


def test_unpacking_reads_the_documented_format() -> None:
    """Pinned, so that a change that could not read yesterday's runs is noticed."""
    outline = {"w": {"$tensor": "0"}, "n": [1, 0.5, "é", None, True], "p": {"$pairs": [[3, "x"], ["$k", 2]]}}
    data = safetensors.torch.save({"0": torch.tensor([1.0, 2.0])}, metadata={"tree": json.dumps(outline)})
    expected = {"w": torch.tensor([1.0, 2.0]), "n": [1, 0.5, "é", None, True], "p": {3: "x", "$k": 2}}
    assert same(expected, unpack(data))
    assert same(expected, unpack(pack(expected)))


def test_views_and_tensors_that_share_memory_are_stored_each_for_itself() -> None:
    whole = torch.arange(6.0).reshape(2, 3)
    images = torch.arange(16.0).reshape(1, 2, 2, 4).contiguous(memory_format=torch.channels_last)
    tree = {"whole": whole, "row": whole[1], "turned": whole.T, "again": whole, "images": images, "none": whole[:0]}
    found = unpack(pack(tree))
    assert found.keys() == tree.keys()
    for name, tensor in tree.items():
        assert torch.equal(found[name], tensor)
        assert found[name].is_contiguous()
    assert pack({"one": whole[1]}) == pack({"one": whole[1].clone()})
