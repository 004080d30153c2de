// Which folders a request may name.
#ifndef TANDEM_SERVICES_TRAINER_SERVICE_ALLOWED_PATH_H_
#define TANDEM_SERVICES_TRAINER_SERVICE_ALLOWED_PATH_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::trainer {

// The folder without links, dots and a trailing slash, where it lies under one of `roots` and is
// none of them: links are followed before that is judged, in the path as in the roots.
// INVALID_ARGUMENT names the field `path`, the roots, and `hint`, what would allow more.
absl::StatusOr<std::string> ResolveUnder(const std::string& path,
                                         const std::vector<std::string>& roots,
                                         const std::string& hint);

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_SERVICE_ALLOWED_PATH_H_
