// What the usage examples in common/security leave to the reader.
#ifndef TANDEM_TESTS_HEADER_EXAMPLES_COMMON_SECURITY_H_
#define TANDEM_TESTS_HEADER_EXAMPLES_COMMON_SECURITY_H_

namespace tandem::security::data_plane_example {
extern bool has_tls;
}  // namespace tandem::security::data_plane_example

namespace tandem::security::sealed_example {
extern std::string group_secret, update_secret, update_id;
}  // namespace tandem::security::sealed_example

namespace tandem::security::secret_example {
extern std::string challenge, found;
absl::Status Refuse();
}  // namespace tandem::security::secret_example

#endif  // TANDEM_TESTS_HEADER_EXAMPLES_COMMON_SECURITY_H_
