// Groups whose every link is TLS, by a secret that the tests' ranks know.
#ifndef TANDEM_TESTS_COMMON_COMM_ENCRYPTED_GROUPS_H_
#define TANDEM_TESTS_COMMON_COMM_ENCRYPTED_GROUPS_H_

#include <memory>

#include "common/comm/choose_group.h"
#include "common/comm/process_group.h"

namespace tandem::comm {

inline GroupOptions Encrypted(GroupOptions options) {
  options.data_plane.encryption = security::DataPlaneEncryption::kAlways;
  options.data_plane.source = "the test";
  options.rendezvous.secret = "the secret of the test's ranks";
  options.rendezvous.store_has_secret = false;
  return options;
}

// With collectives.
inline absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateTlsGroup(const GroupOptions& options) {
  return CreateGroupOf("gloo", Encrypted(options));
}

// Of messages alone.
inline absl::StatusOr<std::unique_ptr<ProcessGroup>> CreateTlsSocketGroup(
    const GroupOptions& options) {
  return CreateGroupOf("socket", Encrypted(options));
}

}  // namespace tandem::comm

#endif  // TANDEM_TESTS_COMMON_COMM_ENCRYPTED_GROUPS_H_
