// Which device a process computes on, from what is configured, what the program was built for, and
// which GPUs the machine has. No CUDA library is called: services add what CUDA says of the GPUs
// (common/model/device_processor.h).
//
//   ASSIGN_OR_RETURN(const DeviceChoice device,
//                    ChooseDevice("trainer.device", "auto", local_rank, ReadGpuFacts()));
//   if (device.on_gpu()) Use(device.gpu);
#ifndef TANDEM_COMMON_HOST_GPUS_H_
#define TANDEM_COMMON_HOST_GPUS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::host {

// The oldest driver that runs CUDA 13, for which programs are built.
inline constexpr int kOldestDriver = 580;

struct Gpu {
  std::string id;    // as CUDA_VISIBLE_DEVICES names it
  std::string name;  // empty if unknown
  int major = 0;     // compute capability; 0.0 if unknown
  int minor = 0;
};

struct GpuFacts {
  // What the program has GPU code for, as CMAKE_CUDA_ARCHITECTURES but with commas: "90-real,120".
  // Empty: a build for CPUs.
  std::string architectures;
  std::string driver;     // "580.65.06"; empty: none is loaded
  std::string problem;    // what CUDA says of its GPUs, if it cannot use them
  std::vector<Gpu> gpus;  // those that the process may use
};

// `root` is the folder of proc/ and sys/. `visible`: the value of CUDA_VISIBLE_DEVICES, null if it
// is unset.
GpuFacts ReadGpuFacts(const std::string& root, const char* visible);
// Of this machine and environment.
GpuFacts ReadGpuFacts();

// Whether code for `architectures` runs on a GPU of this compute capability: native code of the
// same major and no later minor number, or PTX of no later one.
bool RunsOn(absl::string_view architectures, int major, int minor);

struct DeviceChoice {
  int gpu = -1;             // index among the visible GPUs; -1: the CPU
  std::string description;  // "cuda:0, NVIDIA H100, compute capability 9.0, driver 580.65.06"
  bool on_gpu() const { return gpu >= 0; }
};

// `setting` is the value of `key`: auto (or empty), cpu, cuda or cuda:N. `auto` takes the GPU if
// there is one; `cuda` without an index, and auto, take GPU `local_rank`, or the only one that is
// visible. Errors: UNAVAILABLE if a wanted GPU cannot be used, UNIMPLEMENTED if the build has no
// code for it.
absl::StatusOr<DeviceChoice> ChooseDevice(absl::string_view key, absl::string_view setting,
                                          int local_rank, const GpuFacts& facts);

}  // namespace tandem::host

#endif  // TANDEM_COMMON_HOST_GPUS_H_
