# SPDX-License-Identifier: BSD-2-Clause
"""Each operation of a process group of sidewire gives what gloo gives in the same processes, and
where gloo has no such operation, what is computed here.

usage: test_operations.py WORLD [CASE...]
"""
import os
import sys
import tempfile

for name in ('OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS'):
    os.environ.setdefault(name, '1')

import rank_processes
import torch
import torch.distributed as dist

import sidewire_torch

LIMIT_S = 60
SIZES = (0, 1, 3, 1000, 70000)
GLOO_TYPES = (torch.float32, torch.float64, torch.int32, torch.int64, torch.int8, torch.uint8)
Op = dist.ReduceOp
IS_TORCH_1 = torch.__version__.startswith('1.')


class Place:
    """A rank, its group of gloo, and tensors that differ between ranks."""

    def __init__(self, rank, world):
        self.rank, self.world = rank, world
        self.gloo = dist.new_group(backend='gloo')

    def values(self, count, dtype, rank=None, seed=0):
        generator = torch.Generator().manual_seed(
            1000 * seed + (self.rank if rank is None else rank)
        )
        return torch.randint(-4, 5, (count,), generator=generator).to(dtype)

    def all_values(self, count, dtype, seed=0):
        return [self.values(count, dtype, rank, seed) for rank in range(self.world)]


def expect_equal(ours, expected, *words):
    if isinstance(ours, torch.Tensor):
        ours, expected = [ours], [expected]
    for one, other in zip(ours, expected, strict=True):
        same = one.shape == other.shape and one.dtype == other.dtype
        if not same or not torch.equal(one.to_dense(), other.to_dense()):
            raise AssertionError(f'{words}: {one} instead of {other}')


def expect_error(kind, words, function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except kind as error:
        if words not in str(error):
            raise AssertionError(f'{words!r} is not in {error}') from error
    else:
        raise AssertionError(f'no error, but {words!r} was expected')


# ---- sums ----


def all_reduce__as_gloo(place):
    for dtype in GLOO_TYPES:
        for count in SIZES:
            for op in (Op.SUM, Op.PRODUCT, Op.MIN, Op.MAX):
                ours = place.values(count, dtype)
                theirs = ours.clone()
                dist.all_reduce(ours, op)
                dist.all_reduce(theirs, op, group=place.gloo)
                expect_equal(ours, theirs, dtype, count, op)


def all_reduce__of_bits(place):
    for dtype in (torch.int32, torch.int64, torch.uint8, torch.bool):
        for op, function in (
            (Op.BAND, torch.bitwise_and),
            (Op.BOR, torch.bitwise_or),
            (Op.BXOR, torch.bitwise_xor),
        ):
            expected, *others = place.all_values(100, dtype)
            for other in others:
                expected = function(expected, other)
            ours = place.values(100, dtype)
            dist.all_reduce(ours, op)
            expect_equal(ours, expected, dtype, op)
            ours = place.values(100, dtype)
            dist.reduce(ours, place.world - 1, op)
            if place.rank == place.world - 1:
                expect_equal(ours, expected, dtype, op)


def all_reduce__of_halves_and_averages(place):
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for count in SIZES:
            total = sum(one.double() for one in place.all_values(count, dtype))
            ours = place.values(count, dtype)
            dist.all_reduce(ours)
            expect_equal(ours, total.to(dtype), dtype, count)
            ours = place.values(count, dtype)
            dist.all_reduce(ours, Op.AVG)
            near = (ours.double() - total / place.world).abs()
            assert not count or near.max() < 0.02, (dtype, near.max())


def all_reduce__of_bools_and_complex(place):
    ours = torch.tensor([place.rank == 0, True, False])
    dist.all_reduce(ours)
    expect_equal(ours, torch.tensor([True, True, False]))
    ours = torch.tensor([place.rank == 0, True, False])
    dist.all_reduce(ours, Op.PRODUCT)
    expect_equal(ours, torch.tensor([place.world == 1, True, False]))
    ours = torch.tensor([complex(place.rank, 1)])
    dist.all_reduce(ours)
    expect_equal(ours, torch.tensor([complex(sum(range(place.world)), place.world)]))


def all_reduce__of_tensors_with_gaps(place):
    whole = place.values(64, torch.float32).view(8, 8)
    expected = sum(place.all_values(64, torch.float32)).view(8, 8)
    for view in (lambda t: t.t(), lambda t: t[:, 2], lambda t: t[::2]):
        ours = whole.clone()
        dist.all_reduce(view(ours))
        wanted = whole.clone()
        view(wanted).copy_(view(expected))
        expect_equal(ours, wanted)


def all_reduce__of_parameters_that_want_gradients(place):
    ours = torch.ones(3, 4).t().contiguous().t().requires_grad_()
    dist.all_reduce(ours)
    expect_equal(ours.detach(), torch.full((3, 4), float(place.world)))
    assert ours.requires_grad and ours.is_leaf


def all_reduce_coalesced__as_gloo(place):
    ours = [place.values(count, torch.float32, seed=count) for count in (1, 5, 4000, 0)]
    theirs = [one.clone() for one in ours]
    dist.all_reduce_coalesced(ours)
    dist.all_reduce_coalesced(theirs, group=place.gloo)
    expect_equal(ours, theirs)


def all_reduce__of_sparse_tensors(place):
    def make(rank):
        places = torch.tensor([[rank, rank + 1], [0, 2]])
        return torch.sparse_coo_tensor(places, torch.tensor([1.0 + rank, 2.0]), (8, 3))

    ours = make(place.rank)
    dist.all_reduce(ours)
    expect_equal(ours.to_dense(), sum(make(rank).to_dense() for rank in range(place.world)))


def reduce__as_gloo(place):
    for root in range(place.world):
        for count in SIZES:
            ours = place.values(count, torch.float32)
            theirs, before = ours.clone(), ours.clone()
            dist.reduce(ours, root)
            dist.reduce(theirs, root, group=place.gloo)
            expect_equal(ours, theirs if place.rank == root else before, root, count)


def reduce_scatter__of_unequal_blocks(place):
    for dtype, op in ((torch.float32, Op.SUM), (torch.int64, Op.MAX), (torch.int32, Op.BXOR)):
        inputs = [place.values(5 + 3000 * to, dtype, seed=to) for to in range(place.world)]
        ours = torch.empty(5 + 3000 * place.rank, dtype=dtype)
        dist.reduce_scatter(ours, inputs, op)
        expected, *others = place.all_values(5 + 3000 * place.rank, dtype, seed=place.rank)
        for other in others:
            expected = (
                expected + other
                if op == Op.SUM
                else torch.maximum(expected, other)
                if op == Op.MAX
                else expected ^ other
            )
        expect_equal(ours, expected, dtype)


def reduce_scatter_tensor__in_place(place):
    for count in (1, 5000):
        whole = place.values(count * place.world, torch.float32)
        expected = sum(place.all_values(count * place.world, torch.float32))
        expected = expected[count * place.rank :][:count]
        ours = torch.empty(count)
        dist._reduce_scatter_base(ours, whole)
        expect_equal(ours, expected)
        block = whole[count * place.rank :][:count]
        dist._reduce_scatter_base(block, whole)
        expect_equal(block, expected)
        other = whole.clone()  # the output is the block of another rank
        block = other[:count]
        dist._reduce_scatter_base(block, other)
        assert block.shape == (count,)


# ---- moves ----


def broadcast__as_gloo(place):
    for dtype in GLOO_TYPES + (torch.bool, torch.bfloat16, torch.complex64):
        for root in range(place.world):
            for count in SIZES:
                ours = place.values(count, dtype)
                dist.broadcast(ours, root)
                expect_equal(ours, place.values(count, dtype, root), dtype, root, count)


def all_gather__of_unequal_tensors(place):
    for dtype in (torch.float32, torch.bool, torch.complex64):
        for sizes in ([7] * place.world, [0, 3, 2000, 70000][: place.world]):
            ours = [torch.empty(sizes[rank], dtype=dtype) for rank in range(place.world)]
            dist.all_gather(ours, place.values(sizes[place.rank], dtype))
            wanted = [place.values(sizes[rank], dtype, rank) for rank in range(place.world)]
            expect_equal(ours, wanted)


def all_gather__in_place_and_into_one(place):
    for count in (1, 4000):
        wanted = torch.cat(place.all_values(count, torch.float32))
        whole = torch.zeros(count * place.world)
        block = whole[count * place.rank :][:count]
        block.copy_(place.values(count, torch.float32))
        dist._all_gather_base(whole, block)
        expect_equal(whole, wanted)
        whole = torch.zeros(count * place.world)
        dist.all_gather(list(whole.chunk(place.world)), place.values(count, torch.float32))
        expect_equal(whole, wanted)
        whole = torch.zeros(count * place.world)
        whole[:count] = place.values(count, torch.float32)
        dist.all_gather(list(whole.chunk(place.world)), whole[:count])
        expect_equal(whole, wanted)


def all_gather_coalesced__of_unequal_tensors(place):
    inputs = [place.values(count, torch.float32, seed=count) for count in (3, 700)]
    ours = [[torch.empty(3), torch.empty(700)] for _ in range(place.world)]
    dist.all_gather_coalesced(ours, inputs)
    for rank, list_of_rank in enumerate(ours):
        wanted = [place.values(count, torch.float32, rank, seed=count) for count in (3, 700)]
        expect_equal(list_of_rank, wanted)


def gather_and_scatter__of_unequal_tensors(place):
    for root in range(place.world):
        for sizes in ([5] * place.world, [0, 3, 2000, 70000][: place.world]):
            wanted = [place.values(sizes[rank], torch.int64, rank) for rank in range(place.world)]
            mine = place.values(sizes[place.rank], torch.int64)
            is_root = place.rank == root
            ours = [torch.empty(one, dtype=torch.int64) for one in sizes] if is_root else None
            dist.gather(mine, ours, root)
            if is_root:
                expect_equal(ours, wanted)
            back = torch.empty(sizes[place.rank], dtype=torch.int64)
            dist.scatter(back, ours, root)
            expect_equal(back, mine)


def all_to_all__of_unequal_blocks(place):
    def block(source, to):
        return torch.arange(source * 1000 + to * 17) + 10 * source + to

    ranks = range(place.world)
    ours = [torch.empty_like(block(source, place.rank)) for source in ranks]
    dist.all_to_all(ours, [block(place.rank, to) for to in ranks])
    expect_equal(ours, [block(source, place.rank) for source in ranks])
    sizes = [len(block(source, place.rank)) for source in ranks]
    single = torch.empty(sum(sizes), dtype=torch.int64)
    dist.all_to_all_single(
        single,
        torch.cat([block(place.rank, to) for to in ranks]),
        sizes,
        [len(block(place.rank, to)) for to in ranks],
    )
    expect_equal(single, torch.cat(ours))
    single = torch.empty(2 * place.world, 3)
    dist.all_to_all_single(single, torch.full((2 * place.world, 3), float(place.rank)))
    wanted = [torch.full((2, 3), float(source)) for source in ranks]
    expect_equal(single, torch.cat(wanted))


# ---- messages ----


def broadcast__from_no_rank(place):
    for root in -1, place.world:
        words = f'there is no rank {root}'
        expect_error(RuntimeError, words, dist.broadcast, torch.ones(2), root)
        expect_error(RuntimeError, words, dist.reduce, torch.ones(2), root)


def isend__around_a_ring(place):
    after, before = (place.rank + 1) % place.world, (place.rank - 1) % place.world
    for count in (0, 1, 300, 200000):
        ours = torch.empty(count)
        sends = [dist.isend(place.values(count, torch.float32), after)]
        dist.recv(ours, before)
        for send in sends:
            send.wait()
        expect_equal(ours, place.values(count, torch.float32, before))


def irecv__by_tags_in_any_order(place):
    after, before = (place.rank + 1) % place.world, (place.rank - 1) % place.world
    tags = range(12)
    sends = [dist.isend(torch.full((500,), float(tag)), after, tag=tag) for tag in tags]
    ours = [torch.empty(500) for _ in tags]
    receives = [dist.irecv(ours[tag], before, tag=tag) for tag in reversed(tags)]
    for work in receives + sends:
        work.wait()
    expect_equal(ours, [torch.full((500,), float(tag)) for tag in tags])


def recv__from_any(place):
    if place.rank:
        dist.send(torch.tensor([float(place.rank)]), 0)
        return
    sources = set()
    for _ in range(1, place.world):
        ours = torch.empty(1)
        source = dist.recv(ours)
        assert ours.item() == source, (ours, source)
        sources.add(source)
    assert sources == set(range(1, place.world)), sources


def batch_isend_irecv__of_all_pairs(place):
    others = [rank for rank in range(place.world) if rank != place.rank or place.world == 1]
    ours = {rank: torch.empty(9000) for rank in others}
    sends = [
        dist.P2POp(dist.isend, torch.full((9000,), float(10 * place.rank + to)), to)
        for to in others
    ]
    receives = [dist.P2POp(dist.irecv, ours[source], source) for source in others]
    for work in dist.batch_isend_irecv(sends + receives):
        work.wait()
    for source in others:
        expect_equal(ours[source], torch.full((9000,), float(10 * source + place.rank)))


# ---- requests and futures ----


def requests__end_in_any_order(place):
    ours = [torch.full((count,), 1.0) for count in (1, 100000, 10, 5000)]
    works = [dist.all_reduce(one, async_op=True) for one in ours]
    for work in reversed(works):
        work.wait()
        assert work.is_completed() and work.is_success()
    for one in ours:
        expect_equal(one, torch.full_like(one, float(place.world)))


def futures__have_values_and_callbacks(place):
    work = dist.all_reduce(torch.ones(3), async_op=True)
    doubled = work.get_future().then(lambda future: future.value()[0] * 2)
    expect_equal(doubled.wait(), torch.full((3,), 2.0 * place.world))
    work.wait()
    expect_equal(work.get_future().value()[0], torch.full((3,), float(place.world)))
    expect_equal(work.result()[0], torch.full((3,), float(place.world)))

    def again(future):  # a callback that waits for another operation, as those of PowerSGD
        return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0]

    work = dist.all_reduce(torch.ones(5), async_op=True)
    squared = work.get_future().then(again)
    expect_equal(squared.wait(), torch.full((5,), float(place.world**2)))
    work = dist.barrier(async_op=True)
    assert work.get_future().wait() == []


def requests__may_be_forgotten(place):
    for count in (1, 300000):
        for _ in range(20):
            dist.all_reduce(torch.ones(count), async_op=True)
    dist.barrier()


# ---- groups ----


def new_group__of_some_ranks(place):
    some = list(range(1, place.world)) or [0]
    group = dist.new_group(some)
    if place.rank in some:
        ours = torch.tensor([float(place.rank)])
        dist.all_reduce(ours, group=group)
        expect_equal(ours, torch.tensor([float(sum(some))]))
        dist.broadcast(ours, some[0], group=group)
    del group
    dist.barrier()


# ---- what torch 2 alone has ----


def coalesced__by_the_manager(place):
    """Sums of one kind are handed over as one; others begin and end between two marks."""
    if IS_TORCH_1:
        return
    manage = dist.distributed_c10d._coalescing_manager
    sums = [place.values(count, torch.float32, seed=count) for count in SIZES]
    with manage(async_ops=True) as work:
        for values in sums:
            dist.all_reduce(values)
    work.wait()
    for count, values in zip(SIZES, sums):
        expect_equal(values, sum(place.all_values(count, torch.float32, seed=count)), count)
    parts = [torch.zeros(count * place.world) for count in SIZES]
    with manage():
        for count, part in zip(SIZES, parts):
            dist.all_gather_into_tensor(part, place.values(count, torch.float32, seed=count))
    for count, part in zip(SIZES, parts):
        expect_equal(part, torch.cat(place.all_values(count, torch.float32, seed=count)), count)
    scattered = [torch.zeros(count) for count in SIZES]
    with manage():
        for result, part in zip(scattered, parts):
            dist.reduce_scatter_tensor(result, part)
    for count, result in zip(SIZES, scattered):
        own = place.values(count, torch.float32, seed=count)
        expect_equal(result, own * place.world, count)


def coalesced__operations_of_several_kinds(place):
    if IS_TORCH_1:
        return
    right, left = (place.rank + 1) % place.world, (place.rank - 1) % place.world
    told, got = torch.full((1000,), float(place.rank)), torch.zeros(70000)
    sent = torch.full((70000,), float(place.rank))
    device = torch.device('cpu')
    with dist.distributed_c10d._coalescing_manager(device=device, async_ops=True) as work:
        dist.broadcast(told, place.world - 1, async_op=True)
        if place.world > 1:
            dist.isend(sent, right)
            dist.irecv(got, left)
        gathered = [torch.zeros(3) for _ in range(place.world)]
        dist.all_gather(gathered, torch.full((3,), float(place.rank)), async_op=True)
    work.wait()
    expect_equal(told, torch.full((1000,), place.world - 1.0))
    if place.world > 1:
        expect_equal(got, torch.full((70000,), float(left)))
    expect_equal(gathered, [torch.full((3,), float(rank)) for rank in range(place.world)])
    dist.barrier()  # outside of the marks it is waited for as ever


def coalesced__as_functions(place):
    if IS_TORCH_1:
        return
    from torch.distributed import _functional_collectives as functions

    world = dist.group.WORLD
    own = [place.values(count, torch.float32, seed=count) for count in SIZES[1:]]
    totals = [sum(place.all_values(count, torch.float32, seed=count)) for count in SIZES[1:]]
    sums = functions.all_reduce_coalesced(own, 'sum', world)
    expect_equal([functions.wait_tensor(one) for one in sums], totals)
    parts = functions.all_gather_into_tensor_coalesced(own, world)
    parts = [functions.wait_tensor(one) for one in parts]
    expected = [torch.cat(place.all_values(one, torch.float32, seed=one)) for one in SIZES[1:]]
    expect_equal(parts, expected)
    scattered = functions.reduce_scatter_tensor_coalesced(parts, 'sum', [0] * len(parts), world)
    scattered = [functions.wait_tensor(one) for one in scattered]
    expect_equal(scattered, [one * place.world for one in own])


def sequence_numbers__count_operations(place):
    group = dist.distributed_c10d._get_default_group()
    if not IS_TORCH_1:  # its group does not ask back ends of others
        group = group._get_backend(torch.device('cpu'))
    before = group._get_sequence_number_for_group()
    dist.barrier()
    assert group._get_sequence_number_for_group() == before + 1


def arguments__that_make_no_sense(place):
    expect_error(RuntimeError, 'not supported', dist.all_reduce, torch.ones(2), Op.BAND)
    expect_error(
        RuntimeError, 'input must be', dist._reduce_scatter_base, torch.ones(2), torch.ones(3)
    )
    quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8)
    # The dispatcher of torch 2 comes before.
    kind = 'quantized' if IS_TORCH_1 else 'QuantizedCPU'
    expect_error(RuntimeError, kind, dist.all_reduce, quantized)
    freed = torch.ones(1000)[10:]
    (freed.storage() if IS_TORCH_1 else freed.untyped_storage()).resize_(0)
    expect_error(RuntimeError, 'was given back', dist.all_reduce, freed)


def arguments__are_told_with_the_name_once(place):
    group = dist.distributed_c10d._get_default_group()
    options = dist.BroadcastOptions()
    options.rootRank, options.rootTensor = place.world, 0
    try:
        group.broadcast([torch.ones(2)], options)
    except RuntimeError as error:
        assert str(error).splitlines()[0] == f'broadcast: there is no rank {place.world}', error
    else:
        raise AssertionError('no error')


def expanded__elements_that_share_memory(place):
    """Where their results are alike they get them. gloo writes behind the memory."""
    each = torch.arange(1.0, 4) + place.rank
    for shape in ((4, 3), (2, 5, 3)):
        numbers = each.clone().expand(shape)
        dist.all_reduce(numbers)
        ranks = sum(range(place.world))
        expect_equal(numbers, (torch.arange(1.0, 4) * place.world + ranks).expand(shape))
    numbers = each.clone().expand(4, 3)
    dist.broadcast(numbers, 0)
    expect_equal(numbers, torch.arange(1.0, 4).expand(4, 3))
    outputs = [torch.zeros(1).expand(3) for _ in range(place.world)]
    dist.all_gather(outputs, torch.full((3,), float('nan')))
    assert all(torch.isnan(one).all() for one in outputs)
    words = 'share memory, as of expand(), and their results differ'
    expect_error(RuntimeError, words, dist.all_gather, outputs, torch.arange(3.0))


CASES = {name: one for name, one in list(globals().items()) if '__' in name.strip('_')}


def run_cases(names, world):
    with tempfile.TemporaryDirectory() as folder:

        def run(rank):
            torch.set_num_threads(1)
            dist.init_process_group(
                'sidewire', init_method=f'file://{folder}/store', rank=rank, world_size=world
            )
            place = Place(rank, world)
            for name in names:
                print(name, flush=True)
                CASES[name](place)
                dist.barrier()  # no message of a case reaches the one before
            dist.barrier()
            dist.destroy_process_group()

        ranks = rank_processes.run_ranks(world, run, LIMIT_S)
        failed = [rank for rank in ranks if rank.status]
        for rank in failed:
            print(rank.report())
        return 1 if failed else 0


if __name__ == '__main__':
    assert sidewire_torch.__all__
    sys.exit(run_cases(sys.argv[2:] or list(CASES), int(sys.argv[1])))
