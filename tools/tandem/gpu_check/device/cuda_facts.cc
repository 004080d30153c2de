// Implements device_facts.h for builds with CUDA.
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nccl.h>
#include <torch/version.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/model/device_processor.h"
#include "tools/tandem/gpu_check/device/device_facts.h"

namespace tandem::gpu_check {
namespace {

// "13.0" of 13000.
std::string CudaVersion(int number) { return absl::StrCat(number / 1000, ".", number % 1000 / 10); }

std::string DriversCuda() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? CudaVersion(version) : "";
}

std::string RuntimesCuda() {
  int version = 0;
  return cudaRuntimeGetVersion(&version) == cudaSuccess ? CudaVersion(version) : "";
}

std::string NcclVersion() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "";
  return absl::StrCat(version / 10000, ".", version % 10000 / 100, ".", version % 100);
}

// The driver's version from its management library, which containers have where they do not see
// /sys/module. "" if it is not there either.
std::string DriverOfLibrary() {
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return "";
  const auto init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
  const auto end = reinterpret_cast<int (*)()>(dlsym(library, "nvmlShutdown"));
  const auto get =
      reinterpret_cast<int (*)(char*, unsigned)>(dlsym(library, "nvmlSystemGetDriverVersion"));
  std::string version;
  if (init != nullptr && end != nullptr && get != nullptr && init() == 0) {
    char text[96] = {};
    if (get(text, sizeof(text)) == 0) version = text;
    end();
  }
  dlclose(library);
  return version;
}

std::string UuidOf(const cudaDeviceProp& gpu) {
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    const bool part_begins = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    absl::StrAppendFormat(&text, "%s%02x", part_begins ? "-" : "",
                          static_cast<unsigned char>(gpu.uuid.bytes[i]));
  }
  return text;
}

}  // namespace

nlohmann::json DeviceFacts() {
  const host::GpuFacts facts = model::GpuFactsOfProcess();
  nlohmann::json gpus = nlohmann::json::array();
  for (size_t index = 0; index < facts.gpus.size(); ++index) {
    cudaDeviceProp gpu;
    if (cudaGetDeviceProperties(&gpu, static_cast<int>(index)) != cudaSuccess) continue;
    gpus.push_back({{"name", gpu.name},
                    {"uuid", UuidOf(gpu)},
                    {"compute_capability", absl::StrCat(gpu.major, ".", gpu.minor)},
                    {"multiprocessors", gpu.multiProcessorCount},
                    {"memory_bytes", static_cast<int64_t>(gpu.totalGlobalMem)},
                    {"runs_here", host::RunsOn(facts.architectures, gpu.major, gpu.minor)}});
  }
  return {{"driver", facts.driver.empty() ? DriverOfLibrary() : facts.driver},
          {"cuda_driver", DriversCuda()},
          {"cuda_runtime", RuntimesCuda()},
          {"nccl", NcclVersion()},
          {"torch", TORCH_VERSION},
          {"built_for", facts.architectures},
          {"problem", facts.problem},
          {"gpus", std::move(gpus)}};
}

}  // namespace tandem::gpu_check
