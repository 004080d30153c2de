// Checks the values of a configuration, alone and together, and the files that it needs.
#ifndef TANDEM_COMMON_CONFIG_VALIDATION_H_
#define TANDEM_COMMON_CONFIG_VALIDATION_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/config/place.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::config {

// Which choices to refuse, besides nonsensical ones.
enum class Support {
  kThisBuild,  // those that the schema describes but that are "not supported yet"
  kAnyBuild,   // none: to plan for other machines and builds
};

// Returns one line for each value out of range, each contradiction, and each unsupported choice.
// Reads no file.
std::vector<std::string> FindInvalidValues(const v1::RunConfig& config, const Places& places = {},
                                           Support support = Support::kThisBuild);

// Which of the configured files a command is going to read.
struct FileNeeds {
  bool model = true;
  bool train_files = false;
  bool test_files = false;
};

// INVALID_ARGUMENT with a line for each file that is not stated or does not exist. Services skip
// this: they check files as they read them.
absl::Status CheckFiles(const v1::RunConfig& config, const FileNeeds& needs,
                        const Places& places = {});

}  // namespace tandem::config

#endif  // TANDEM_COMMON_CONFIG_VALIDATION_H_
