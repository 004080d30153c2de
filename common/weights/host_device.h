// TANDEM_HOST_DEVICE marks functions that run on both CPU and GPU: nvcc compiles them for both,
// other compilers as plain C++. They may use neither the standard library nor Abseil at run time.
// TANDEM_UNROLL unrolls the following loop in device code.
#ifndef TANDEM_COMMON_WEIGHTS_HOST_DEVICE_H_
#define TANDEM_COMMON_WEIGHTS_HOST_DEVICE_H_

#ifdef __CUDACC__
#define TANDEM_HOST_DEVICE __host__ __device__
#define TANDEM_UNROLL _Pragma("unroll")
#else
#define TANDEM_HOST_DEVICE
#define TANDEM_UNROLL
#endif

#endif  // TANDEM_COMMON_WEIGHTS_HOST_DEVICE_H_
