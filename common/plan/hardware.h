// Hardware: the machines that a run is planned for.
//
//   ASSIGN_OR_RETURN(Hardware hardware, ParseHardware("h100x8x4"));   // 4 hosts of 8
//   Hardware here = ThisMachine();
#ifndef TANDEM_COMMON_PLAN_HARDWARE_H_
#define TANDEM_COMMON_PLAN_HARDWARE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace tandem::plan {

struct Hardware {
  std::string name;  // "h100"
  bool is_gpu = false;
  int per_host = 1;  // accelerators; processes of the trainer, where there are none
  int hosts = 1;
  // Of one accelerator; of a host, shared by all processes on it, where there are none.
  int64_t memory_bytes = 0;
  int64_t reserved_bytes = 0;  // of it, for each process, that tensors cannot have
  double flops = 0;            // bfloat16, per accelerator
  double efficiency = 0.4;     // share of them that a step reaches
  double intra_host = 0;       // bytes per second, of one accelerator
  double inter_host = 0;
  int64_t host_memory_bytes = 0;
  double host_link = 0;
  double disk = 0;

  int total() const { return per_host * hosts; }
  // "h100 x 8 x 4: 32 accelerators of 79.6 GiB".
  std::string Describe() const;
};

// NAME x PER_HOST x HOSTS ("h100x8x4", "a100x8"); cpu:MEMORY:RANKSxHOSTS with the memory of a host
// ("cpu:24gib:2x1"); or a YAML file with the keys of hardware.yaml, and name, per_host, hosts.
// INVALID_ARGUMENT says what is wrong; an unknown name is answered with the nearest.
absl::StatusOr<Hardware> ParseHardware(const std::string& text);

// This host's memory that is free now, for `ranks` trainer processes.
Hardware ThisMachine(int ranks);

}  // namespace tandem::plan

#endif  // TANDEM_COMMON_PLAN_HARDWARE_H_
