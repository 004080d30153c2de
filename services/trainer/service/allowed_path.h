// Restricts the folders that a request may name.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_ALLOWED_PATH_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_ALLOWED_PATH_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::trainer {

// Returns the canonical folder (links followed, no dots, no trailing slash) if it lies below one of
// `roots` and is not a root itself; follows links in the roots too. INVALID_ARGUMENT names the
// field `path`, the roots, and `hint`, which says what would allow more.
absl::StatusOr<std::string> ResolveUnder(const std::string& path,
                                         const std::vector<std::string>& roots,
                                         const std::string& hint);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_ALLOWED_PATH_H_
