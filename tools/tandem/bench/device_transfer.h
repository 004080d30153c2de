// Times the transport of a weight update between processes on a device, beside bare broadcasts of
// the same bytes and copies within the device's memory.
#ifndef TANDEM_TOOLS_TANDEM_BENCH_DEVICE_TRANSFER_H_
#define TANDEM_TOOLS_TANDEM_BENCH_DEVICE_TRANSFER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "tandem/common/v1/weights.pb.h"

namespace tandem::bench {

struct DeviceTransfer {
  common::v1::Manifest manifest;
  std::string device;   // "cuda" or "cpu"
  std::string backend;  // as in GroupRendezvous.backend
  int rollouts = 1;
  int64_t bucket_bytes = 0;
  int repeats = 5;
};

// Starts a sender and one process per rollout. Returns median seconds: "seconds" of an update (cast
// to wire type, broadcast, unpack, digest at both ends), "raw_seconds" of bare broadcasts,
// "pack_seconds", "digest_seconds" and "copy_seconds" of one process that casts, digests, or copies
// the model; and "device", the device's name. Errors: those of the processes; DATA_LOSS if a
// rollout received other bytes than were sent.
absl::StatusOr<nlohmann::json> MeasureDeviceTransfer(const DeviceTransfer& transfer);

}  // namespace tandem::bench

#endif  // TANDEM_TOOLS_TANDEM_BENCH_DEVICE_TRANSFER_H_
