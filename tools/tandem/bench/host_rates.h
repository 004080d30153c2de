// How fast this host does the parts of a weight update, measured: what a prediction of one is made
// of.
#ifndef TANDEM_TOOLS_TANDEM_BENCH_HOST_RATES_H_
#define TANDEM_TOOLS_TANDEM_BENCH_HOST_RATES_H_

#include <cstdint>

namespace tandem::bench {

// Bytes on the wire per second, of one core while every core does the same, in portions that
// messages have.
struct HostRates {
  int cores = 1;
  double send = 0;    // the sender's digest, and its cast where the wire is not float32
  double unpack = 0;  // the receiver's digest, and the packing for its products
};

// Takes about a second. `element_bytes`: 4 for float32, 2 for bfloat16.
HostRates MeasureHostRates(int64_t element_bytes);

}  // namespace tandem::bench

#endif  // TANDEM_TOOLS_TANDEM_BENCH_HOST_RATES_H_
