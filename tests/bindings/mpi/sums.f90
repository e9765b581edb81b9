! SPDX-License-Identifier: BSD-2-Clause
! Calls of Fortran, whose names are others: some that are ours, and both ends of a communicator.
program sums
    use mpi
    implicit none
    integer :: rank, ranks, copy, total, i, fault, requests(3), own(3), most(3)
    double precision :: values(100)
    call MPI_Init(fault)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, fault)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, fault)
    call MPI_Comm_dup(MPI_COMM_WORLD, copy, fault)
    call MPI_Allreduce(rank + 1, total, 1, MPI_INTEGER, MPI_SUM, copy, fault)
    if (total /= ranks * (ranks + 1) / 2) call MPI_Abort(copy, 1, fault)
    values = [(dble(rank * i), i=1, 100)]
    call MPI_Allreduce(MPI_IN_PLACE, values, 100, MPI_DOUBLE_PRECISION, MPI_SUM, copy, fault)
    if (values(100) /= 100 * ranks * (ranks - 1) / 2) call MPI_Abort(copy, 1, fault)
    call MPI_Barrier(copy, fault)
    own = [rank, rank + 1, rank + 2]
    do i = 1, 3
        call MPI_Iallreduce(own(i), most(i), 1, MPI_INTEGER, MPI_MAX, copy, requests(i), fault)
    end do
    call MPI_Waitall(3, requests, MPI_STATUSES_IGNORE, fault)
    if (any(most /= [ranks - 1, ranks, ranks + 1])) call MPI_Abort(copy, 1, fault)
    call MPI_Comm_free(copy, fault)
    if (rank == 0) print '(i0, a)', ranks, ' ranks, done'
    call MPI_Finalize(fault)
end program
