#include "common/tokenizer/unigram.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/unicode.h"

namespace tandem::tokenizer {
namespace {

// An unknown character scores this much less than the worst token.
constexpr double kUnknownPenalty = 10;
// The best path takes 16 bytes for each; these make 256 MiB.
constexpr size_t kMaxUnigramPieceBytes = size_t{16} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Unigram::Read(const JsonNode& node) {
  ASSIGN_OR_RETURN(const JsonNode vocab, node.Field("vocab"));
  ASSIGN_OR_RETURN(const size_t count, vocab.ArraySize());
  std::vector<std::string> tokens;
  std::vector<double> scores;
  tokens.reserve(count);
  scores.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const nlohmann::json& entry = vocab.value()[i];
    // JSON has no NaN and no infinity, so scores are finite.
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      return vocab.At(i).Error("expected [\"token\", score]");
    }
    tokens.push_back(entry[0].get<std::string>());
    scores.push_back(entry[1].get<double>());
  }
  RETURN_IF_ERROR(CheckTrieKeys(tokens, vocab));
  auto unigram = std::unique_ptr<Unigram>(new Unigram(Vocabulary::FromList(std::move(tokens))));
  ASSIGN_OR_RETURN(const std::optional<JsonNode> unk_id, node.Find("unk_id"));
  if (unk_id.has_value()) {
    ASSIGN_OR_RETURN(const int64_t id, unk_id->Int(0, std::numeric_limits<int32_t>::max()));
    if (static_cast<size_t>(id) >= count) {
      return unk_id->Error(
          absl::StrCat("the id ", id, " is not in a vocabulary of ", count, " tokens"));
    }
    unigram->unk_id_ = static_cast<int32_t>(id);
  }
  ASSIGN_OR_RETURN(unigram->byte_fallback_, node.BoolOr("byte_fallback", false));
  std::vector<PrefixTrie::Entry> entries;
  entries.reserve(count);
  int32_t id = 0;
  for (const std::string& token : unigram->vocabulary_.tokens()) entries.push_back({token, id++});
  unigram->trie_ = PrefixTrie(std::move(entries));
  unigram->unk_score_ = std::numeric_limits<double>::infinity();
  for (double score : scores) unigram->unk_score_ = std::min(unigram->unk_score_, score);
  unigram->unk_score_ -= kUnknownPenalty;
  unigram->scores_ = std::move(scores);
  unigram->byte_ids_ = unigram->vocabulary_.ByteTokenIds();
  return std::unique_ptr<Model>(std::move(unigram));
}

absl::StatusOr<std::vector<Unigram::Step>> Unigram::BestPath(absl::string_view piece) const {
  std::vector<Step> steps(piece.size() + 1);
  const auto offer = [&steps](size_t end, double score, size_t begin, int32_t id) {
    Step& step = steps[end];
    if (step.begin < 0 || score > step.score) step = {score, static_cast<int32_t>(begin), id};
  };
  size_t length;
  for (size_t begin = 0; begin < piece.size(); begin += length) {
    DecodeAt(piece, begin, &length);
    const double score = steps[begin].score;
    bool character_known = false;
    int32_t node = PrefixTrie::kRoot;
    for (size_t end = begin; end < piece.size();) {
      node = trie_.Step(node, piece[end++]);
      if (node == PrefixTrie::kNone) break;
      const int32_t id = trie_.Value(node);
      if (id == PrefixTrie::kNone) continue;
      offer(end, score + scores_[static_cast<size_t>(id)], begin, id);
      character_known |= end - begin == length;
    }
    if (character_known) continue;
    if (!unk_id_.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.json: model.unk_id is not set, and the text has the unknown "
                       "character '",
                       piece.substr(begin, length), "'"));
    }
    offer(begin + length, score + unk_score_, begin, *unk_id_);
  }
  return steps;
}

void Unigram::AppendRun(absl::string_view run, std::vector<int32_t>* ids) const {
  if (const auto id = vocabulary_.TokenToId(run)) {
    ids->push_back(*id);
    return;
  }
  const auto byte_id = [this](char b) { return byte_ids_[static_cast<unsigned char>(b)]; };
  if (byte_fallback_ &&
      std::all_of(run.begin(), run.end(), [&](char b) { return byte_id(b) >= 0; })) {
    for (char b : run) ids->push_back(byte_id(b));
    return;
  }
  ids->push_back(*unk_id_);  // a path with unknown characters exists only with it
}

absl::Status Unigram::Tokenize(absl::string_view piece, std::vector<int32_t>* ids) const {
  if (piece.empty() || cache_.Lookup(piece, ids)) return absl::OkStatus();
  if (piece.size() > kMaxUnigramPieceBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a word of ", piece.size(), " bytes; at most ",
                                                   kMaxUnigramPieceBytes, "; split the text"));
  }
  ASSIGN_OR_RETURN(const std::vector<Step> steps, BestPath(piece));
  std::vector<size_t> ends;  // of the tokens, from the last to the first
  bool after_unknown = false;
  for (size_t end = piece.size(); end > 0; end = static_cast<size_t>(steps[end].begin)) {
    const bool unknown = unk_id_.has_value() && steps[end].id == *unk_id_;
    // Neighbouring unknown tokens become one.
    if (!unknown || !after_unknown) ends.push_back(end);
    after_unknown = unknown;
  }
  const size_t before = ids->size();
  size_t begin = 0;
  for (size_t i = ends.size(); i-- > 0;) {
    AppendRun(piece.substr(begin, ends[i] - begin), ids);
    begin = ends[i];
  }
  cache_.Insert(piece, ids->data() + before, ids->size() - before);
  return absl::OkStatus();
}

}  // namespace tandem::tokenizer
