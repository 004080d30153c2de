// The inputs of a run besides its weights: the model's configuration, tokenizer and chat template,
// and the data. A checkpoint stores their digests, to detect a resume with other inputs.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_RUN_INPUTS_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_RUN_INPUTS_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tandem/driver/v1/driver_state.pb.h"
#include "tools/tandem/driver/prompt_source.h"

namespace tandem::driver {

// The kinds of inputs, as --allow-changed names them.
inline constexpr char kConfigInput[] = "config";
inline constexpr char kTokenizerInput[] = "tokenizer";
inline constexpr char kChatTemplateInput[] = "chat_template";
inline constexpr char kDataInput[] = "data";
inline constexpr char kTestDataInput[] = "test_data";
std::vector<std::string> InputKinds();

using RunInputs = std::vector<v1::InputDigest>;

// Digests the run's model folders: config.json and generation_config.json, the tokenizer's files,
// and the chat templates, in whichever file they are. Missing files have no entry.
absl::StatusOr<RunInputs> DigestModelInputs(const config::v1::RunConfig& config);

// Adds the digests of data files to `inputs`.
void AddDataInputs(const char* kind, const std::vector<DataFile>& files, RunInputs& inputs);

// Differences between a run's inputs and those of a checkpoint.
struct InputChanges {
  std::set<std::string> kinds;
  std::vector<std::string> lines;  // "data: PATH: expected the digest X, found Y"
};

// A kind is equal if its files have the same content in the same order; their paths do not matter.
// Compares test_data only if both have it: evaluations may be turned on and off.
InputChanges CompareInputs(const RunInputs& expected, const RunInputs& found);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_RUN_INPUTS_H_
