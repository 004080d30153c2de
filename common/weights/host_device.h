// TANDEM_HOST_DEVICE: marks what both a CPU and a GPU run: compiled for both by nvcc, and plain C++
// for the other compilers. What is marked uses neither the standard library nor Abseil at run time.
// TANDEM_UNROLL: the device's copy of the loop that follows is unrolled.
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
