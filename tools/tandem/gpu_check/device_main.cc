// tandem-check-device: the parts of `tandem gpu-check` that compute on a device themselves. Prints
// JSON objects, one a line. `tandem gpu-check` starts it; by hand it repeats one part.
//
//   tandem-check-device facts
//   tandem-check-device kernels --device cuda:0 [--from K] [--small]
//   tandem-check-device rates --device cuda:0
//   tandem-check-device lost-rank --device cuda:0 --backend nccl --rank 0 --port P
#include <cstdio>
#include <exception>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "common/device/device.h"
#include "common/io/json_text.h"
#include "common/model/allocator.h"
#include "common/status/status_macros.h"
#include "common/text/flag_help.h"
#include "tools/tandem/gpu_check/device/device_facts.h"
#include "tools/tandem/gpu_check/device/device_rates.h"
#include "tools/tandem/gpu_check/device/lost_rank.h"
#include "tools/tandem/gpu_check/kernels/comparison.h"

namespace tandem::gpu_check {
namespace {

struct Options {
  std::string device = "cpu";
  int64_t from = 0;
  bool small = false;
  std::string backend;
  int rank = 0;
  int port = 0;
};

// At once, for whoever reads while the next part runs, or crashes.
void Print(const nlohmann::json& line) {
  std::printf("%s\n", io::JsonText(line).c_str());
  std::fflush(stdout);
}

absl::Status RunKernels(const Options& options) {
  const at::Device device(options.device);
  ASSIGN_OR_RETURN(const auto current, device::Device::Create(device));
  current->MakeCurrent();
  const std::vector<Comparison> comparisons = AllComparisons();
  for (auto i = static_cast<size_t>(options.from); i < comparisons.size(); ++i) {
    const nlohmann::json place = {{"comparison", i}, {"of", comparisons.size()}};
    nlohmann::json begins = place;
    begins["begins"] = NameOf(comparisons[i]);
    Print(begins);
    nlohmann::json result = RunComparison(comparisons[i], device, options.small);
    current->Synchronize();  // a fault belongs to this comparison
    result.update(place);
    Print(result);
  }
  return absl::OkStatus();
}

absl::Status RunRates(const Options& options) {
  const at::Device device(options.device);
  RateWork work;
  if (device.is_cpu()) work = {.copy_bytes = 1 << 20, .product_size = 64, .repeats = 1};
  ASSIGN_OR_RETURN(const nlohmann::json rates, MeasureDeviceRates(device, work));
  Print(rates);
  return absl::OkStatus();
}

absl::Status RunLostRank(const Options& options) {
  ASSIGN_OR_RETURN(const nlohmann::json noticed,
                   LoseOtherRank({.device = at::Device(options.device),
                                  .backend = options.backend,
                                  .rank = options.rank,
                                  .port = options.port}));
  Print(noticed);
  return absl::OkStatus();
}

int Run(int argc, char** argv) {
  CLI::App app("The parts of `tandem gpu-check` that compute on a device");
  text::ShowDefaults(app);
  app.require_subcommand(1);
  Options options;
  const auto add_device = [&](CLI::App* command) {
    command->add_option("--device", options.device, "cpu or cuda:N");
    return command;
  };
  CLI::App* const facts = app.add_subcommand("facts", "What CUDA says of this machine");
  CLI::App* const kernels =
      add_device(app.add_subcommand("kernels", "Compares our kernels with ATen"));
  kernels->add_option("--from", options.from, "Number of the first comparison")
      ->check(CLI::NonNegativeNumber);
  kernels->add_flag("--small", options.small, "Small inputs");
  CLI::App* const rates = add_device(app.add_subcommand("rates", "Measures copies and products"));
  CLI::App* const lost = add_device(app.add_subcommand("lost-rank", "One of two ranks"));
  lost->add_option("--backend", options.backend, "Kind of the group")->required();
  lost->add_option("--rank", options.rank, "0, or 1, which kills itself")->check(CLI::Range(0, 1));
  lost->add_option("--port", options.port, "Port of the rendezvous")->required();
  CLI11_PARSE(app, argc, argv);
  absl::Status status;
  if (facts->parsed()) Print(DeviceFacts());
  if (kernels->parsed()) status = RunKernels(options);
  if (rates->parsed()) status = RunRates(options);
  if (lost->parsed()) status = RunLostRank(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "tandem-check-device: %s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace tandem::gpu_check

int main(int argc, char** argv) {
  tandem::model::TuneAllocator();
  try {
    return tandem::gpu_check::Run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tandem-check-device: %s\n", error.what());
    return 1;
  }
}
