// PastTurns: the turns of a session's earlier calls, so that a prompt which repeats a turn has the
// tokens that were sampled instead of new ones for the same text.
//
//   turns.AddChat(digests_with_answer, turn);
//   if (const auto turn = turns.FindChat(MessageDigests(messages))) Continue(*turn);
#ifndef TANDEM_SERVICES_ROLLOUT_SESSIONS_PAST_TURNS_H_
#define TANDEM_SERVICES_ROLLOUT_SESSIONS_PAST_TURNS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace tandem::rollout {

// A call's prompt and one of its answers.
struct PastTurn {
  std::vector<int32_t> token_ids;  // of the prompt, then as they were sampled
  // Chats: what the template rendered, up to the answer. Other calls: the prompt and the answer.
  std::string text;
  std::string end_token;    // text of the token that ended the answer, or empty; chats only
  size_t num_messages = 0;  // the answer included; chats only
  size_t num_images = 0;    // whose placeholders are among the prompt's tokens

  int64_t bytes() const {
    return static_cast<int64_t>(token_ids.size() * sizeof(int32_t) + text.size());
  }
};

// Not thread-safe.
class PastTurns {
 public:
  // `digests`: those of the call's messages and its answer.
  void AddChat(const std::vector<std::string>& digests, PastTurn turn);
  void AddText(PastTurn turn);

  // The turn that the messages repeat, with the most messages; null if there is none.
  std::shared_ptr<const PastTurn> FindChat(const std::vector<std::string>& digests) const;
  // The turn that the text begins with, the longest one; null if there is none.
  std::shared_ptr<const PastTurn> FindText(absl::string_view text) const;

 private:
  absl::flat_hash_map<std::string, std::shared_ptr<const PastTurn>> chats_;  // by the last digest
  // By length of the text.
  std::multimap<size_t, std::shared_ptr<const PastTurn>> texts_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_SESSIONS_PAST_TURNS_H_
