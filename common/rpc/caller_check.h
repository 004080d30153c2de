// CallerCheck: every call to a server passes it before a service sees it.
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

// The roles that a connection's certificate gives; none without one.
security::Roles RolesOf(const grpc::AuthContext& connection);

// The roles of a call: its token's where one is shown, which then speaks alone, or its
// certificate's. None for a token that `tokens` (may be null) does not know.
security::Roles RolesOfCall(const Metadata& metadata, const grpc::AuthContext& connection,
                            security::TokenTable* tokens);

// Who calls, for counting: a digest of the token, or the names of the certificate; empty for nobody
// known.
std::string CallerOf(const Metadata& metadata, const grpc::AuthContext& connection);

// A token, where one is shown, speaks alone: it must be known. Otherwise the certificate does.
// UNAUTHENTICATED where neither says anything, PERMISSION_DENIED where the role may not call the
// method, RESOURCE_EXHAUSTED for more calls than one client may have. Refusals are counted, and
// one a second is logged: strangers could fill the disk.
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

  // How many refusals were not logged since the last line; nothing where this one is not either.
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
