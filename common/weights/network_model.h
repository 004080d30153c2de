// Predicts how long a weight update takes on a described network, for the three transports.
//
//   const Network h100{.ranks_per_host = 8, .nics_per_host = 8, .nic = 50e9, .local = 450e9,
//                      .latency = 20e-6, .pack = 1e12, .unpack = 1e12};
//   Prediction reshard = PredictReshard(fleet, h100);
//   Prediction broadcast = PredictBroadcast(fleet, h100, model_bytes, bucket_bytes);
//
// Hosts: the trainer's ranks fill hosts from the first on, the rollout's from the next empty host;
// with one_host all are on one. Bytes between ranks of one host cross the local links of both
// (NVLink; shared memory), all others a NIC of each host. Local rank i has NIC i * nics / ranks.
// With rails NIC i reaches only NICs i, so the sender uses its NIC with the receiver's number, over
// its local link if that NIC belongs to another rank.
//
// reshard is an event simulation of the plan, message by message in plan order:
//   packed   = max(packer free, one of the sender's two buckets free)     + bytes / pack
//   sent     = max(packed, NICs or links free, a bucket of the receiver)  + bytes / bandwidth
//   arrived  = sent + latency
//   unpacked = max(arrived, unpacker free)                                + bytes / unpack
// A replica of the chain forwards a message on arrival; its bucket is free once the message is
// unpacked and has arrived at the next replica, so two buckets let one message pass per sent +
// latency. At a change of tensor-parallel size the chain restarts once the previous replica has
// everything. Very long chains are simulated in part and extrapolated at the pace of the last
// simulated hops. At the end a replica's ranks exchange the data that several of them hold.
//
// delta is the same with wire bytes * density * bytes_per_changed / element_bytes (at most 1). The
// encoder replaces pack and reads every element; the decoder replaces unpack, by wire bytes.
// Excludes the copy that brings the idle arena to the base.
//
// broadcast, with B buckets of b bytes of which the share a is held by all rollout ranks, in a
// collective over R ranks host by host; the rest in a chain over the replicas of each of S sizes:
//   gather = the longer of b * (share of ranks on other hosts) / nic and b * (share on the leader's
//            host) / local: it is sends to one rank, which arrive over its own NIC
//   pack   = b / pack;   unpack = b * (largest share of the model that a rank holds) / unpack
//   wire   = b * a / min(local, nic * collective_nics) + S * b * (1 - a) / min(local, nic)
//   seconds = (gather + pack + wire + unpack)
//             + R * (chunk / bandwidth + latency)              if a > 0
//             + (replicas of a size - 1) * (a rank's bytes of a bucket / bandwidth + latency)
//             + (B - 1) * max(gather, pack, wire, unpack)
// What several ranks of a replica hold counts as held by all.
//
// If cores are given, packing, unpacking and local transfers run on the host's cores: no transport
// is faster than the sum of this work divided by the cores, or than a rank that alternates between
// receiving copies and unpacking. A collective through shared memory is one copy per receiver.
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
  int collective_nics = 1;  // used at once by a collective; a leader alone on its host has one
  bool rails = false;
  bool one_host = false;
  int cores_per_host = 0;                      // 0: unlimited
  double nic = 1e9;                            // per NIC and direction
  double local = 1e9;                          // per rank and direction
  double latency = 0;                          // per message
  double pack = 1e12;                          // per rank, with the digest
  double unpack = 1e12;                        // per rank, with the digest
  double collective_chunk_bytes = 512 * 1024;  // forwarded at a time by a broadcast
  double fixed = 0;                            // calls, checks and commit per update
};

// The setup of `tandem bench sync`: all processes on this host, with rates measured here.
Network MeasuredHost(int cores, double local, double pack, double unpack, double fixed);

// The cost of delta encoding.
struct DeltaCost {
  double density = 0.03;         // share of elements that change
  double bytes_per_changed = 4;  // value and position
  double encode = 200e9;         // dense bytes per second and rank
  double decode = 100e9;         // wire bytes per second and rank
};

// Traffic over all NICs of the hosts in question, in the busier direction.
struct NicBytes {
  double max = 0;
  double mean = 0;
};

struct Prediction {
  double seconds = 0;
  double busy_seconds = 0;    // of the busiest resource
  std::string critical_path;  // that resource, and what precedes and follows it
  NicBytes trainer_nics;      // bytes sent
  NicBytes rollout_nics;      // bytes received
};

Prediction PredictReshard(const FleetPlan& fleet, const Network& network);
Prediction PredictDelta(const FleetPlan& fleet, const Network& network, const DeltaCost& cost);
Prediction PredictBroadcast(const FleetPlan& fleet, const Network& network, int64_t model_bytes,
                            int64_t bucket_bytes);

}  // namespace tandem::weights

#endif  // TANDEM_COMMON_WEIGHTS_NETWORK_MODEL_H_
