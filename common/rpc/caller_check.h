// CallerCheck: authenticates and authorizes every call before a service sees it.
#ifndef TANDEM_COMMON_RPC_CALLER_CHECK_H_
#define TANDEM_COMMON_RPC_CALLER_CHECK_H_

#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/auth_metadata_processor.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/rpc/call_metrics.h"
#include "common/rpc/caller_limit.h"
#include "common/security/role.h"
#include "common/security/token_table.h"

namespace tandem::rpc {

// Metadata that carries a token: "Bearer TOKEN".
inline constexpr char kAuthorization[] = "authorization";

using Metadata = std::multimap<grpc::string_ref, grpc::string_ref>;

// Returns the roles in the connection's certificate; none without a certificate.
security::Roles RolesOf(const grpc::AuthContext& connection);

// Returns the roles of a call: those of its token if it shows one, else those of its certificate.
// None for a token that `tokens` (may be null) does not know.
security::Roles RolesOfCall(const Metadata& metadata, const grpc::AuthContext& connection,
                            security::TokenTable* tokens);

// Identifies the caller for counting: a digest of the token, or the names in the certificate; empty
// for an unknown caller.
std::string CallerOf(const Metadata& metadata, const grpc::AuthContext& connection);

// If the call shows a token, only the token counts and it must be known; otherwise the certificate
// counts. UNAUTHENTICATED without a valid token or certificate, PERMISSION_DENIED if the role may
// not call the method, RESOURCE_EXHAUSTED if the client has too many calls in flight. Counts every
// refusal but logs one per second at most, so that strangers cannot fill the disk.
class CallerCheck final : public grpc::AuthMetadataProcessor {
 public:
  // `tokens` may be null.
  CallerCheck(std::shared_ptr<security::TokenTable> tokens, std::shared_ptr<CallMetrics> metrics,
              std::shared_ptr<CallerLimit> limit)
      : tokens_(std::move(tokens)), metrics_(std::move(metrics)), limit_(std::move(limit)) {}

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const Metadata& metadata, grpc::AuthContext* connection,
                       OutputMetadata* consumed, OutputMetadata* response) override;

 private:
  absl::Status Check(const std::string& method, const Metadata& metadata,
                     const grpc::AuthContext& connection);

  // Returns how many refusals went unlogged since the last line, or nothing if this one is not
  // logged.
  std::optional<int64_t> ShouldLog();

  const std::shared_ptr<security::TokenTable> tokens_;
  const std::shared_ptr<CallMetrics> metrics_;
  const std::shared_ptr<CallerLimit> limit_;
  absl::Mutex mu_;
  absl::Time next_line_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  int64_t num_unsaid_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_CALLER_CHECK_H_
