// Hardware: the machines that a run is planned for.
//
//   ASSIGN_OR_RETURN(Hardware hardware, ParseHardware("h100x8x4"));   // 4 hosts of 8
//   Hardware here = ThisMachine(/*ranks=*/2);
#ifndef TANDEM_TOOLS_TANDEM_PLAN_HARDWARE_H_
#define TANDEM_TOOLS_TANDEM_PLAN_HARDWARE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace tandem::plan {

struct Hardware {
  std::string name;  // "h100"
  bool is_gpu = false;
  int per_host = 1;  // accelerators; trainer processes if there are none
  int hosts = 1;
  // Per accelerator; without accelerators per host, shared by all its processes.
  int64_t memory_bytes = 0;
  int64_t reserved_bytes = 0;  // part of it, per process, that tensors cannot use
  double flops = 0;            // bfloat16, per accelerator
  double efficiency = 0.4;     // share of them that a step achieves
  double intra_host = 0;       // bytes per second, per accelerator
  double inter_host = 0;
  int64_t host_memory_bytes = 0;
  double host_link = 0;
  double disk = 0;

  int total() const { return per_host * hosts; }
  // "h100 x 8 x 4: 32 accelerators of 79.6 GiB".
  std::string Describe() const;
};

// Parses NAME x PER_HOST x HOSTS ("h100x8x4", "a100x8"); cpu:MEMORY:RANKSxHOSTS with the memory of
// a host ("cpu:24gib:2x1"); or the path of a YAML file with the keys of hardware.yaml, and name,
// per_host, hosts. INVALID_ARGUMENT describes the error; for an unknown name it suggests the
// nearest.
absl::StatusOr<Hardware> ParseHardware(const std::string& text);

// Describes this host, with its currently free memory, for `ranks` trainer processes.
Hardware ThisMachine(int ranks);

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_HARDWARE_H_
