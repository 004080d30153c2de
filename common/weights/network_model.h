// How long a weight update takes on a described network: the three transports side by side.
//
//   const Network h100{.ranks_per_host = 8, .nics_per_host = 8, .nic = 50e9, .local = 450e9,
//                      .latency = 20e-6, .pack = 1e12, .unpack = 1e12};
//   Prediction reshard = PredictReshard(fleet, h100);
//   Prediction broadcast = PredictBroadcast(fleet, h100, model_bytes, bucket_bytes);
//
// Hosts: the trainer's ranks fill hosts from the first on, the rollout's from the next whole host;
// with one_host all are on one. Bytes between ranks of one host cross the local links of both
// (NVLink; shared memory), all others a NIC of either host. Local rank i has NIC i * nics / ranks.
// On rails NIC i reaches only NICs i, so the sender's bytes leave by the receiver's number, over
// the sender's local link where that is another's.
//
// reshard, an event simulation of the plan, message by message in plan order:
//   packed   = max(packer free, one of the sender's two buckets free)     + bytes / pack
//   sent     = max(packed, NICs or links free, a bucket of the receiver)  + bytes / bandwidth
//   arrived  = sent + latency
//   unpacked = max(arrived, unpacker free)                                + bytes / unpack
// A replica of the chain sends a message on when it has arrived, and its bucket is free when it is
// unpacked and has arrived at the next: so two buckets let one message pass per sent + latency.
// Where the chain comes to another tensor-parallel size it starts again when the replica before has
// everything. Very long chains are simulated in part, and the rest goes on at the pace of the last
// simulated hops. At the end a replica's ranks exchange what several of them hold.
//
// delta is the same with wire bytes * density * bytes_per_changed / element_bytes (at most 1), the
// encoder reading every element in place of pack, and the decoder in place of unpack, by wire
// bytes. The copy that brings the idle arena to the base is not in it.
//
// broadcast, with B buckets of b bytes, N trainer ranks, R rollout ranks in a chain of host by
// host:
//   gather = the longer of b * (share of ranks on other hosts) / nic and b * (share on the leader's
//            host) / local: it is sends to one rank, which come by its own NIC
//   pack   = b / pack;   unpack = b / unpack, of all bytes, on every rank
//   wire   = b / min(local, nic * collective_nics)
//   seconds = (gather + pack + wire + unpack) + hops * (chunk / bandwidth + latency)
//             + (B - 1) * max(gather, pack, wire, unpack)
//
// Where cores are stated, packing, unpacking and local transfers are work of the host's cores: no
// transport is faster than the sum of this work, divided by the cores, and a rank that receives
// copies and unpacks by turns. A collective through shared memory is one copy for each receiver.
// `fixed` is added to every transport.
#ifndef TANDEM_COMMON_WEIGHTS_NETWORK_MODEL_H_
#define TANDEM_COMMON_WEIGHTS_NETWORK_MODEL_H_

#include <cstdint>
#include <string>

#include "common/weights/fleet_plan.h"

namespace tandem::weights {

// Rates are bytes per second, times seconds.
struct Network {
  int ranks_per_host = 1;
  int nics_per_host = 1;
  int collective_nics = 1;  // that a broadcast uses at once; a leader alone on its host has one
  bool rails = false;
  bool one_host = false;
  int cores_per_host = 0;                      // 0: copies do not wait for cores
  double nic = 1e9;                            // each, either direction
  double local = 1e9;                          // of one rank, either direction
  double latency = 0;                          // of a message
  double pack = 1e12;                          // of one rank, with the digest
  double unpack = 1e12;                        // of one rank, with the digest
  double collective_chunk_bytes = 512 * 1024;  // what a broadcast passes on at a time
  double fixed = 0;                            // calls, checks and commit of an update
};

// What `tandem bench sync` runs on: all processes on this host, with rates as measured here.
Network MeasuredHost(int cores, double local, double pack, double unpack, double fixed);

// How an element that changed travels.
struct DeltaCost {
  double density = 0.03;         // share of elements that change
  double bytes_per_changed = 4;  // value and position
  double encode = 200e9;         // dense bytes per second, of one rank
  double decode = 100e9;         // wire bytes per second, of one rank
};

// Over all NICs of the hosts in question, in the direction where it is most.
struct NicBytes {
  double max = 0;
  double mean = 0;
};

struct Prediction {
  double seconds = 0;
  double busy_seconds = 0;    // of what is busy longest
  std::string critical_path;  // what that is, and what comes before and after it
  NicBytes trainer_nics;      // bytes sent
  NicBytes rollout_nics;      // bytes received
};

Prediction PredictReshard(const FleetPlan& fleet, const Network& network);
Prediction PredictDelta(const FleetPlan& fleet, const Network& network, const DeltaCost& cost);
Prediction PredictBroadcast(const FleetPlan& fleet, const Network& network, int64_t model_bytes,
                            int64_t bucket_bytes);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_NETWORK_MODEL_H_
