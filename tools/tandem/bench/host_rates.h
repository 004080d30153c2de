// How fast this host does the parts of a weight update, measured: what a prediction of one is made
// of.
#ifndef TANDEM_TOOLS_TANDEM_BENCH_HOST_RATES_H_
#define TANDEM_TOOLS_TANDEM_BENCH_HOST_RATES_H_

#include <cstdint>

namespace tandem::bench {

// What an update is made of.
struct HostWork {
  int64_t element_bytes = 4;  // on the wire: of what the ranks compute with, which is not cast
  int64_t size_bytes = 0;     // of the model on the wire
  int64_t columns = 512;      // of its matrices
  double packed_share = 1;    // of its bytes that a receiver packs for its products
  int64_t message_bytes = int64_t{1} << 20;  // what is passed on at once
  bool lends = true;      // receivers copy from the senders' memory, else from sockets
  bool passes_on = true;  // what a receiver of lent bytes copied is read by the next one
};

// Bytes on the wire per second, of one core while every core does the same.
struct HostRates {
  int cores = 1;
  double send = 0;  // the sender's digest
  double copy = 0;  // from one memory to another
  // What a receiver does: it copies what is lent to it, digests it and puts it in another order; of
  // what comes from sockets, whose bytes are copied in any case, the rest.
  double unpack = 0;
};

// Takes about a second, and up to 600 MB for each core.
HostRates MeasureHostRates(const HostWork& work);

}  // namespace tandem::bench

#endif  // TANDEM_TOOLS_TANDEM_BENCH_HOST_RATES_H_
