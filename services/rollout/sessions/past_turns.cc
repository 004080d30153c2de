#include "services/rollout/sessions/past_turns.h"

#include <utility>

#include "absl/strings/match.h"

namespace tandem::rollout {

void PastTurns::AddChat(const std::vector<std::string>& digests, PastTurn turn) {
  turn.num_messages = digests.size();
  chats_[digests.back()] = std::make_shared<const PastTurn>(std::move(turn));
}

void PastTurns::AddText(PastTurn turn) {
  const size_t length = turn.text.size();
  texts_.emplace(length, std::make_shared<const PastTurn>(std::move(turn)));
}

std::shared_ptr<const PastTurn> PastTurns::FindChat(const std::vector<std::string>& digests) const {
  for (auto digest = digests.rbegin(); digest != digests.rend(); ++digest) {
    const auto found = chats_.find(*digest);
    if (found != chats_.end()) return found->second;
  }
  return nullptr;
}

std::shared_ptr<const PastTurn> PastTurns::FindText(absl::string_view text) const {
  for (auto it = std::make_reverse_iterator(texts_.upper_bound(text.size())); it != texts_.rend();
       ++it) {
    if (absl::StartsWith(text, it->second->text)) return it->second;
  }
  return nullptr;
}

}  // namespace tandem::rollout
