// Package openblas computes the cases with OpenBLAS. The matrices are stored
// inputs by outputs, which suits its kernels best, and one row goes through
// sgemv, which is several times as fast as sgemm for it. Recurrent steps are a
// product over [x; h] (for a GRU two products) and a loop over the gates in C,
// which the compiler turns into vector instructions.
//
// With the build tag openblas the package is linked with OpenBLAS; without it
// the library is reported as not available. Which kernels run is decided by the
// library for the processor it finds, or by OPENBLAS_CORETYPE in the environment
// of the process; they are named as its version.
package openblas
