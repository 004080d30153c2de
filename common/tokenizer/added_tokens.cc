#include "common/tokenizer/added_tokens.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/unicode.h"

namespace tandem::tokenizer {
namespace {

constexpr size_t kMaxTokenBytes = 4096;
// Limit for all tokens together: a trie takes some 13 times as much.
constexpr size_t kMaxTotalBytes = 4 << 20;

absl::StatusOr<AddedToken> ReadToken(const JsonNode& node) {
  AddedToken token;
  ASSIGN_OR_RETURN(const JsonNode content, node.Field("content"));
  ASSIGN_OR_RETURN(token.content, content.String());
  if (token.content.size() > kMaxTokenBytes) {
    return content.Error(
        absl::StrCat("a token of ", token.content.size(), " bytes; at most ", kMaxTokenBytes));
  }
  ASSIGN_OR_RETURN(token.single_word, node.BoolOr("single_word", false));
  ASSIGN_OR_RETURN(token.lstrip, node.BoolOr("lstrip", false));
  ASSIGN_OR_RETURN(token.rstrip, node.BoolOr("rstrip", false));
  ASSIGN_OR_RETURN(token.special, node.BoolOr("special", false));
  ASSIGN_OR_RETURN(token.normalized, node.BoolOr("normalized", !token.special));
  return token;
}

using Contents = std::vector<std::pair<std::string, int32_t>>;

// Of equal contents the first wins.
PrefixTrie TrieOf(const Contents& contents) {
  std::vector<PrefixTrie::Entry> entries;
  entries.reserve(contents.size());
  for (auto it = contents.rbegin(); it != contents.rend(); ++it) {
    entries.push_back({it->first, it->second});
  }
  return PrefixTrie(std::move(entries));
}

// Length of the longest token at `offset`, 0 for none; sets `*id`.
size_t LongestAt(const PrefixTrie& trie, absl::string_view text, size_t offset, int32_t* id) {
  size_t longest = 0;
  int32_t node = PrefixTrie::kRoot;
  for (size_t i = offset; i < text.size();) {
    node = trie.Step(node, text[i++]);
    if (node == PrefixTrie::kNone) break;
    if (trie.Value(node) == PrefixTrie::kNone) continue;
    longest = i - offset;
    *id = trie.Value(node);
  }
  return longest;
}

}  // namespace

absl::Status AddedTokens::Add(const AddedToken& token, const Vocabulary& vocabulary) {
  if (token.content.empty()) return absl::OkStatus();
  if (token.special && specials_.insert(token.content).second) special_order_.push_back(token);
  std::optional<int32_t> id = TokenToId(token.content);
  if (id.has_value() && by_id_[*id] == token) return absl::OkStatus();
  if (!id.has_value()) id = vocabulary.TokenToId(token.content);
  if (!id.has_value()) {
    const auto model_size = static_cast<int32_t>(vocabulary.size());
    id = model_size;
    if (max_id_.has_value() && (*max_id_ >= model_size || model_size == 0)) {
      if (*max_id_ == std::numeric_limits<int32_t>::max()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "no id is left for the token '", token.content, "': one before it has the id ",
            *max_id_, ", the largest; correct that id in the vocabulary"));
      }
      id = *max_id_ + 1;
    }
    ++num_beyond_model_;
  }
  ids_[token.content] = *id;
  by_id_[*id] = token;
  max_id_ = std::max(max_id_.value_or(*id), *id);
  if (!specials_.contains(token.content)) classic_order_.push_back(token);
  return absl::OkStatus();
}

absl::StatusOr<AddedTokens> AddedTokens::Read(const JsonNode& node, const Vocabulary& vocabulary,
                                              const Normalizer* normalizer) {
  AddedTokens out;
  ASSIGN_OR_RETURN(const size_t count, node.ArraySize());
  size_t total_bytes = 0;
  for (size_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(const AddedToken token, ReadToken(node.At(i)));
    total_bytes += token.content.size();
    if (total_bytes > kMaxTotalBytes) {
      return node.Error(absl::StrCat("the tokens have more than ", kMaxTotalBytes, " bytes"));
    }
    if (const absl::Status added = out.Add(token, vocabulary); !added.ok()) {
      return node.At(i).Error(added.message());
    }
  }
  Contents raw, normalized;
  total_bytes = 0;
  for (const auto* order : {&out.special_order_, &out.classic_order_}) {
    for (const AddedToken& token : *order) {
      const int32_t id = *out.TokenToId(token.content);
      if (!token.normalized) {
        raw.emplace_back(token.content, id);
        continue;
      }
      std::string content = token.content;
      if (normalizer != nullptr) {
        RETURN_IF_ERROR(normalizer->Apply(&content));
      }
      total_bytes += content.size();
      if (total_bytes > kMaxTotalBytes) {
        return node.Error(
            absl::StrCat("the normalized tokens have more than ", kMaxTotalBytes, " bytes"));
      }
      if (out.by_id_[id].normalized) out.normalized_content_[id] = content;
      normalized.emplace_back(std::move(content), id);
    }
  }
  out.raw_ = TrieOf(raw);
  out.normalized_ = TrieOf(normalized);
  return out;
}

std::vector<Segment> AddedTokens::Cut(absl::string_view text, bool normalized) const {
  const PrefixTrie& trie = normalized ? normalized_ : raw_;
  std::vector<Segment> out;
  size_t done = 0;
  // White space that a token has taken. The search goes on within it, so tokens that are white space
  // themselves would walk through it again and again.
  size_t taken_from = 0, taken_to = 0;
  for (size_t i = 0; i < text.size() && !trie.empty();) {
    int32_t id = 0;
    const size_t length = LongestAt(trie, text, i, &id);
    if (length == 0) {
      ++i;
      continue;
    }
    size_t begin = i, end = i + length, n;
    i = end;  // also where the token is not taken: matches never overlap
    const AddedToken& token = by_id_.at(id);
    if (token.single_word && ((begin > 0 && IsWord(DecodeBefore(text, begin, &n))) ||
                              (end < text.size() && IsWord(DecodeAt(text, end, &n))))) {
      continue;
    }
    if (token.lstrip) {
      while (begin > done && IsWhitespace(DecodeBefore(text, begin, &n))) begin -= n;
    }
    if (token.rstrip) {
      if (end < taken_from || end > taken_to) taken_from = taken_to = end;
      if (taken_from == taken_to) {
        while (taken_to < text.size() && IsWhitespace(DecodeAt(text, taken_to, &n))) taken_to += n;
      }
      end = taken_to;
    }
    if (done < begin) out.push_back({{done, begin}, std::nullopt});
    out.push_back({{begin, end}, id});
    done = end;
  }
  if (done < text.size()) out.push_back({{done, text.size()}, std::nullopt});
  return out;
}

std::optional<int32_t> AddedTokens::TokenToId(absl::string_view content) const {
  const auto it = ids_.find(content);
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

const std::string* AddedTokens::DecodedForm(int32_t id) const {
  const auto it = normalized_content_.find(id);
  if (it != normalized_content_.end()) return &it->second;
  const AddedToken* token = IdToToken(id);
  return token == nullptr ? nullptr : &token->content;
}

const AddedToken* AddedTokens::IdToToken(int32_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : &it->second;
}

}  // namespace tandem::tokenizer
