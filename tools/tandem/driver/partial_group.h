// PartialGroup: the samples of one prompt while they come in, from one replica after another where
// that is needed: what is there is kept, and only the rest is asked for.
#ifndef TANDEM_TOOLS_TANDEM_DRIVER_PARTIAL_GROUP_H_
#define TANDEM_TOOLS_TANDEM_DRIVER_PARTIAL_GROUP_H_

#include <cstdint>
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

  // What asks for the rest. The text of samples that go on is dropped: the answer has it again.
  rollout::v1::GenerateRequest NextRequest();

  // Adds an answer to the request that was made last. INTERNAL where it is not what the contract
  // says: an index out of range, tokens without log-probs, spans that leave out a token, name a
  // version out of range, or in which one process goes back to an older version.
  // FAILED_PRECONDITION (FOREIGN_WEIGHTS), with nothing added, where other weights sampled it than
  // those of the trainer that the request names.
  absl::Status Append(const rollout::v1::GenerateResponse& response);

  // Every sample has ended, be it by an abort.
  bool ended() const;
  // One has been aborted, and could go on.
  bool aborted() const;
  // Marks those that have not ended as aborted.
  void Abort();

  // Sampled tokens of samples that have not ended by themselves: what a new call keeps.
  int64_t num_partial_tokens() const;
  // Tokens that a replica still computes for it, at most.
  int64_t cost() const;

  std::vector<Completion> Take() { return std::move(completions_); }

 private:
  rollout::v1::GenerateRequest request_;
  std::vector<Completion> completions_;
  std::vector<int64_t> last_version_;  // of each sample's last token in the present call; -1: none
};

}  // namespace tandem::driver

#endif  // TANDEM_TOOLS_TANDEM_DRIVER_PARTIAL_GROUP_H_
