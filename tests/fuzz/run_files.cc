// The files of a run folder, as `tandem view`, `diagnose`, `replay`, `train --resume` and another
// run's start read them. The first byte says which file the rest is.
#include <fstream>
#include <string>
#include <vector>

#include "common/config/load.h"
#include "common/config/to_yaml.h"
#include "common/io/lock_record.h"
#include "tests/fuzz/input_folder.h"
#include "tools/tandem/diagnose/report.h"
#include "tools/tandem/driver/driver_state.h"
#include "tools/tandem/driver/otlp_export.h"
#include "tools/tandem/driver/recorded_samples.h"
#include "tools/tandem/driver/run_id.h"
#include "tools/tandem/view/run_reader.h"

namespace {

using nlohmann::json;

void Show(const absl::StatusOr<json>& answer) {
  if (answer.ok()) (void)answer->dump(-1, ' ', false, json::error_handler_t::replace);
}

void View(const std::string& run_dir) {
  const auto reader = tandem::view::RunReader::Open(run_dir);
  if (!reader.ok()) std::abort();
  Show((*reader)->Status());
  Show((*reader)->Config());
  Show((*reader)->Metrics(0, 0));
  for (const int64_t offset : {0, 7}) {
    Show((*reader)->Samples(tandem::view::SampleSet::kRollouts, 1, offset));
  }
  (void)(*reader)->SampleIds({tandem::view::SampleSet::kRollouts, 1, 0});
}

void Diagnose(const std::string& run_dir) {
  const auto report = tandem::diagnose::Diagnose(run_dir);
  if (!report.ok()) return;
  (void)tandem::diagnose::ToText(*report);
  (void)tandem::diagnose::ToHtml(*report);
  Show(tandem::diagnose::ToJson(*report));
}

void ReadState(const std::string& bytes) {
  using namespace tandem::driver;  // NOLINT: the readers
  auto state = ParseDriverState(bytes, "checkpoint");
  if (!state.ok()) return;
  for (const auto& group : state->ahead().groups()) (void)FromProto(group);
  RunIdentity run{state->command(), state->seed(), state->num_prompts(), {}, {kDataInput}};
  std::vector<std::string> notes;
  (void)CheckDriverState(run, *state, notes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size == 0) return 0;
  static tandem::fuzz::InputFolder folder;
  static const bool made = [] {
    std::filesystem::create_directory(folder.path() + "/rollouts");
    std::filesystem::create_directory(folder.path() + "/logs");
    auto config = tandem::config::DefaultRunConfig();
    config.set_run_dir(folder.path());
    std::ofstream(folder.path() + "/config.yaml") << tandem::config::ToYaml(config);
    return true;
  }();
  (void)made;
  const std::string rest(reinterpret_cast<const char*>(bytes + 1), size - 1);
  const auto write = [&rest](const std::string& name) {
    return folder.Write(name, reinterpret_cast<const uint8_t*>(rest.data()), rest.size());
  };
  for (const char* name : {"metrics.jsonl", "updates.jsonl", "trace.json", "rollouts/1.jsonl"}) {
    std::filesystem::remove(folder.path() + "/" + name);
  }
  constexpr char kStep[] = "{\"training/global_step\": 1}\n";
  switch (bytes[0] % 8) {
    case 0:
      write("metrics.jsonl");
      View(folder.path());
      Diagnose(folder.path());
      break;
    case 1: {
      const std::string path = write("rollouts/1.jsonl");
      View(folder.path());
      (void)tandem::driver::ReadRecording(path, 2);
      break;
    }
    case 2:
      std::ofstream(folder.path() + "/metrics.jsonl") << kStep;
      write("updates.jsonl");
      Diagnose(folder.path());
      break;
    case 3: {
      std::ofstream(folder.path() + "/metrics.jsonl") << kStep;
      write("trace.json");
      Diagnose(folder.path());
      const json trace = json::parse(rest, nullptr, /*allow_exceptions=*/false);
      if (trace.is_object() && trace.contains("traceEvents") && trace["traceEvents"].is_array()) {
        (void)tandem::driver::ToOtlp(trace, 10);
      }
      break;
    }
    case 4:
      ReadState(rest);
      break;
    case 5: {
      const auto record = tandem::io::ParseLockRecord(rest, "run.lock");
      if (record.ok()) {
        (void)tandem::io::Describe(*record);
        (void)tandem::io::IsRunning(*record);
      }
      break;
    }
    case 6:
      write("run_id");
      (void)tandem::driver::ChooseRunId(folder.path(), /*resume=*/true);
      break;
    default: {
      // What tandem doctor --json said of the hosts.
      std::ofstream(folder.path() + "/metrics.jsonl") << kStep;
      (void)tandem::diagnose::Diagnose(folder.path(), write("doctor.jsonl"));
    }
  }
  return 0;
}
