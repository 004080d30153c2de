// A run's YAML. One that is accepted is written as YAML that reads as the same configuration.
#include <google/protobuf/util/message_differencer.h>

#include "common/config/load.h"
#include "common/config/to_yaml.h"
#include "tests/fuzz/input_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static tandem::fuzz::InputFolder folder;
  const auto config =
      tandem::config::LoadRunConfig({folder.Write("run.yaml", data, size)}, {"run_dir=r"});
  if (!config.ok()) return 0;
  const std::string yaml = tandem::config::ToYaml(*config);
  const auto again = tandem::config::LoadRunConfig(
      {folder.Write("again.yaml", reinterpret_cast<const uint8_t*>(yaml.data()), yaml.size())}, {});
  if (!again.ok() || !google::protobuf::util::MessageDifferencer::Equals(*config, *again)) {
    std::fprintf(stderr, "%s\n%s\n", yaml.c_str(), again.status().ToString().c_str());
    std::abort();
  }
  return 0;
}
