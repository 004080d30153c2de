// Which values a configuration may hold, alone and together, and which files it needs.
#ifndef TANDEM_COMMON_CONFIG_VALIDATION_H_
#define TANDEM_COMMON_CONFIG_VALIDATION_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/config/place.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::config {

// Which choices are refused beside those that make no sense.
enum class Support {
  kThisBuild,  // those that are described but "not supported yet"
  kAnyBuild,   // none: for plans of machines and builds that are not here
};

// One line for each value out of its range, each contradiction, and each unsupported choice. Looks
// at no file.
std::vector<std::string> FindInvalidValues(const v1::RunConfig& config, const Places& places = {},
                                           Support support = Support::kThisBuild);

// Which of the files that a configuration names a command is going to read.
struct FileNeeds {
  bool model = true;
  bool train_files = false;
  bool test_files = false;
};

// INVALID_ARGUMENT with a line for each that is not stated or not there. The services skip it: what
// they read, they check as they read it.
absl::Status CheckFiles(const v1::RunConfig& config, const FileNeeds& needs,
                        const Places& places = {});

}  // namespace tandem::config

#endif  // TANDEM_COMMON_CONFIG_VALIDATION_H_
