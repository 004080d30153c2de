// Measures how fast this host runs the parts of a weight update, for a prediction of its time.
#ifndef TANDEM_TOOLS_TANDEM_BENCH_HOST_RATES_H_
#define TANDEM_TOOLS_TANDEM_BENCH_HOST_RATES_H_

#include <cstdint>

namespace tandem::bench {

// The work of an update.
struct HostWork {
  int64_t element_bytes = 4;  // on the wire: of the ranks' compute type, so there is no cast
  int64_t size_bytes = 0;     // of the model on the wire
  int64_t columns = 512;      // of its matrices
  double packed_share = 1;    // share of its bytes that a receiver packs for its matrix products
  int64_t message_bytes = int64_t{1} << 20;  // forwarded at once
  bool lends = true;      // receivers copy from the senders' memory; else from sockets
  bool passes_on = true;  // the next receiver reads the copy of a receiver of lent bytes
};

// Bytes on the wire per second and core, while every core does the same work.
struct HostRates {
  int cores = 1;
  double send = 0;  // the sender's digest
  double copy = 0;  // from memory to memory
  // The receiver's work: copies lent bytes, digests and reorders them. For bytes from sockets,
  // which are copied in any case, only the digest and the reordering.
  double unpack = 0;
};

// Takes about a second, and up to 600 MB per core.
HostRates MeasureHostRates(const HostWork& work);

}  // namespace tandem::bench

#endif  // TANDEM_TOOLS_TANDEM_BENCH_HOST_RATES_H_
