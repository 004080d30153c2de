// The inputs of a run besides its weights: the model's configuration, family file, tokenizer and
// chat template, the data, the files of its rewards, and its teachers' folders. A checkpoint stores
// their digests, to detect a resume with other inputs.
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
inline constexpr char kFamilyFileInput[] = "family_file";
inline constexpr char kTokenizerInput[] = "tokenizer";
inline constexpr char kChatTemplateInput[] = "chat_template";
inline constexpr char kDataInput[] = "data";
inline constexpr char kTestDataInput[] = "test_data";
inline constexpr char kRewardInput[] = "reward";
inline constexpr char kTeacherInput[] = "teacher";
std::vector<std::string> InputKinds();

using RunInputs = std::vector<v1::InputDigest>;

// Digests the run's model folders: config.json and generation_config.json, the tokenizer's files,
// and the chat templates, in whichever file they are; and model.family_file. Missing files have no
// entry; a run without a family file has an entry without a digest, which tells it from a checkpoint
// of an older release.
absl::StatusOr<RunInputs> DigestModelInputs(const config::v1::RunConfig& config);

// Adds the digests of data files to `inputs`.
void AddDataInputs(const char* kind, const std::vector<DataFile>& files, RunInputs& inputs);

// Adds the digests of the rewards' Python files, without what they import; an entry without a digest
// if there are none. Only for runs that compute rewards.
absl::Status AddRewardInputs(const config::v1::RewardConfig& config, RunInputs& inputs);

// Adds the digests of the teachers' folders: config.json and the weights, which are read whole. A teacher
// at an endpoint is no input, unless others are folders; a run without a teacher adds an entry without a
// digest.
absl::Status AddTeacherInputs(const config::v1::RunConfig& config, RunInputs& inputs);

// Differences between a run's inputs and those of a checkpoint.
struct InputChanges {
  std::set<std::string> kinds;
  std::vector<std::string> lines;  // "data: PATH: expected the digest X, found Y"
};

// A kind is equal if its files have the same content in the same order; their paths do not matter.
// Compares test_data, reward, family_file and teacher only if both have them: evaluations may be turned
// on and off, and older releases saved no digests of the others.
InputChanges CompareInputs(const RunInputs& expected, const RunInputs& found);

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_RUN_INPUTS_H_
