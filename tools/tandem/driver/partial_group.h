// PartialGroup: the samples of one prompt while they arrive. If a replica fails, the group keeps
// the tokens so far, and the next request asks another replica only for the rest.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_PARTIAL_GROUP_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_PARTIAL_GROUP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tandem/rollout/v1/rollout_service.pb.h"
#include "tools/tandem/driver/completion.h"

namespace tandem::driver {

// Used by one thread at a time.
class PartialGroup {
 public:
  // `request` asks for all samples; n and max_tokens are set.
  explicit PartialGroup(rollout::v1::GenerateRequest request);

  // Returns the request for the rest. Drops the text of unfinished samples: responses repeat it.
  rollout::v1::GenerateRequest NextRequest();

  // Adds a response to the last request. INTERNAL if it breaks the contract: an index out of range,
  // tokens without log-probs, or spans that skip a token, name a version out of range, or go back
  // to an older version within one call. FAILED_PRECONDITION (FOREIGN_WEIGHTS), with nothing added,
  // if weights of another trainer than the requested one sampled it.
  absl::Status Append(const rollout::v1::GenerateResponse& response);

  // Whether every sample has ended, including by an abort.
  bool ended() const;
  // Whether a sample was aborted, and so can continue.
  bool aborted() const;
  // Marks the samples that have not ended as aborted.
  void Abort();

  // Tokens of unfinished and aborted samples, which a new call keeps.
  int64_t num_partial_tokens() const;
  // The most tokens that a replica still computes for it, the prompt included.
  int64_t cost() const;

  // Notes which replica sampled last.
  void SetReplica(const std::string& id) {
    for (Completion& completion : completions_) completion.replica = id;
  }

  std::vector<Completion> Take() { return std::move(completions_); }

 private:
  rollout::v1::GenerateRequest request_;
  std::vector<Completion> completions_;
  std::vector<int64_t> last_version_;  // of each sample's last token in the current call; -1: none
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_PARTIAL_GROUP_H_
