// RecordedExperts: the experts of the tokens of an agent's recorded calls. A call repeats none that an
// earlier one has (RecordedCall.shared_tokens).
//
//   ASSIGN_OR_RETURN(const RecordedExperts experts, RecordedExperts::Of(calls));
//   ASSIGN_OR_RETURN(const std::string bytes, experts.Of(call, first));
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_RECORDED_EXPERTS_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_RECORDED_EXPERTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tandem/rollout/v1/rollout_service.pb.h"

namespace tandem::driver {

class RecordedExperts {
 public:
  // The calls, each with tokens, must outlive the result. INTERNAL for a record that breaks the contract.
  static absl::StatusOr<RecordedExperts> Of(const std::vector<rollout::v1::RecordedCall>& calls);

  // 0 if the session did not record them.
  size_t bytes_per_token() const { return bytes_per_token_; }

  // Those of a call's prompt and then its sampled tokens, from token `first` on. INTERNAL if calls that
  // share tokens refer to each other in a circle.
  absl::StatusOr<std::string> Of(int call, int64_t first) const;

 private:
  explicit RecordedExperts(const std::vector<rollout::v1::RecordedCall>& calls) : calls_(&calls) {}
  absl::Status Check(int index) const;

  const std::vector<rollout::v1::RecordedCall>* calls_;
  size_t bytes_per_token_ = 0;
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_RECORDED_EXPERTS_H_
