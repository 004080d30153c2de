#include "common/tokenizer/bpe.h"

#include <algorithm>
#include <limits>
#include <queue>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/unicode.h"

namespace tandem::tokenizer {
namespace {

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

// A possible merge of the symbol at `pos` with its right neighbour.
struct Candidate {
  uint32_t rank;
  uint32_t pos;
  int32_t id;
  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : pos > other.pos;
  }
};

struct Symbol {
  int32_t id;
  int32_t prev;  // -1: none
  int32_t next;  // -1: none
  bool gone;     // merged into its left neighbour
};

constexpr size_t kMaxPieceBytes = size_t{1} << 30;

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Bpe::Read(const JsonNode& node) {
  ASSIGN_OR_RETURN(const std::optional<JsonNode> dropout, node.Find("dropout"));
  if (dropout.has_value() && !(dropout->value().is_number() && dropout->value() == 0)) {
    return dropout->Unimplemented("dropout other than 0 makes ids random; set it to null");
  }
  ASSIGN_OR_RETURN(const JsonNode vocab, node.Field("vocab"));
  ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::Read(vocab));
  auto bpe = std::unique_ptr<Bpe>(new Bpe(std::move(vocabulary)));
  ASSIGN_OR_RETURN(const std::optional<JsonNode> unk_token, node.Find("unk_token"));
  if (unk_token.has_value()) {
    ASSIGN_OR_RETURN(bpe->unk_token_, unk_token->String());
  }
  ASSIGN_OR_RETURN(bpe->continuing_subword_prefix_, node.StringOr("continuing_subword_prefix", ""));
  ASSIGN_OR_RETURN(bpe->end_of_word_suffix_, node.StringOr("end_of_word_suffix", ""));
  ASSIGN_OR_RETURN(bpe->fuse_unk_, node.BoolOr("fuse_unk", false));
  ASSIGN_OR_RETURN(bpe->byte_fallback_, node.BoolOr("byte_fallback", false));
  ASSIGN_OR_RETURN(bpe->ignore_merges_, node.BoolOr("ignore_merges", false));
  ASSIGN_OR_RETURN(const JsonNode merges, node.Field("merges"));
  RETURN_IF_ERROR(bpe->ReadMerges(merges));
  bpe->IndexCharacters();
  return std::unique_ptr<Model>(std::move(bpe));
}

absl::Status Bpe::ReadMerges(const JsonNode& merges) {
  ASSIGN_OR_RETURN(const size_t count, merges.ArraySize());
  merges_.reserve(count);
  uint32_t rank = 0;
  for (size_t i = 0; i < count; ++i) {
    const nlohmann::json& entry = merges.value()[i];
    absl::string_view left, right;
    bool well_formed = false;
    if (entry.is_string()) {
      const std::string& text = entry.get_ref<const std::string&>();
      if (absl::string_view(text).substr(0, 8) == "#version") continue;
      const size_t space = text.find(' ');
      well_formed = space != std::string::npos && text.find(' ', space + 1) == std::string::npos;
      if (well_formed) {
        left = absl::string_view(text).substr(0, space);
        right = absl::string_view(text).substr(space + 1);
      }
    } else if (entry.is_array() && entry.size() == 2 && entry[0].is_string() &&
               entry[1].is_string()) {
      well_formed = true;
      left = entry[0].get_ref<const std::string&>();
      right = entry[1].get_ref<const std::string&>();
    }
    if (!well_formed) {
      return merges.At(i).Error("expected a merge, \"left right\" or [\"left\", \"right\"]");
    }
    const auto left_id = vocabulary_.TokenToId(left);
    const auto right_id = vocabulary_.TokenToId(right);
    if (right.size() < continuing_subword_prefix_.size()) {
      return merges.At(i).Error(absl::StrCat("'", right, "' is shorter than the prefix '",
                                             continuing_subword_prefix_, "'"));
    }
    const std::string merged = absl::StrCat(left, right.substr(continuing_subword_prefix_.size()));
    const auto merged_id = vocabulary_.TokenToId(merged);
    if (!left_id.has_value() || !right_id.has_value() || !merged_id.has_value()) {
      const absl::string_view absent = !left_id ? left : !right_id ? right : merged;
      return merges.At(i).Error(absl::StrCat("'", absent, "' is not in model.vocab"));
    }
    merges_[PairKey(*left_id, *right_id)] = Merge{rank++, *merged_id};
  }
  return absl::OkStatus();
}

void Bpe::IndexCharacters() {
  byte_ids_ = vocabulary_.ByteTokenIds();
  for (char32_t c = 0; c < character_ids_.size(); ++c) {
    std::string utf8;
    AppendUtf8(c, &utf8);
    character_ids_[c] = vocabulary_.TokenToId(utf8).value_or(-1);
  }
}

const Bpe::Merge* Bpe::FindMerge(int32_t left, int32_t right) const {
  const auto it = merges_.find(PairKey(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

// Id of the character in bytes [begin, end) of the word, with the prefix and suffix of its place.
std::optional<int32_t> Bpe::CharacterId(absl::string_view piece, size_t begin, size_t end) const {
  const absl::string_view character = piece.substr(begin, end - begin);
  const bool plain = (begin == 0 || continuing_subword_prefix_.empty()) &&
                     (end < piece.size() || end_of_word_suffix_.empty());
  if (!plain) {
    return vocabulary_.TokenToId(absl::StrCat(begin == 0 ? "" : continuing_subword_prefix_,
                                              character,
                                              end < piece.size() ? "" : end_of_word_suffix_));
  }
  size_t length;
  const char32_t c = DecodeAt(piece, begin, &length);
  if (c < character_ids_.size()) {
    const int32_t id = character_ids_[c];
    return id < 0 ? std::nullopt : std::optional<int32_t>(id);
  }
  return vocabulary_.TokenToId(character);
}

absl::StatusOr<std::vector<int32_t>> Bpe::Characters(absl::string_view piece) const {
  std::vector<int32_t> ids;
  ids.reserve(piece.size());
  // An unknown token waits here for more unknown characters to fuse with. The reference writes it
  // out before the next known character, so after any byte tokens that come in between.
  constexpr int32_t kNone = -1;
  int32_t unknown = kNone;
  for (size_t begin = 0; begin < piece.size();) {
    size_t length;
    DecodeAt(piece, begin, &length);
    const size_t end = begin + length;
    const std::optional<int32_t> id = CharacterId(piece, begin, end);
    if (id.has_value()) {
      if (unknown != kNone) ids.push_back(unknown);
      unknown = kNone;
      ids.push_back(*id);
      begin = end;
      continue;
    }
    std::string bytes =
        absl::StrCat(begin == 0 ? "" : continuing_subword_prefix_, piece.substr(begin, length),
                     end < piece.size() ? "" : end_of_word_suffix_);
    begin = end;
    const auto byte_id = [this](char b) { return byte_ids_[static_cast<unsigned char>(b)]; };
    if (byte_fallback_ &&
        std::all_of(bytes.begin(), bytes.end(), [&](char b) { return byte_id(b) >= 0; })) {
      for (char b : bytes) ids.push_back(byte_id(b));
      continue;
    }
    if (!unk_token_.has_value()) continue;
    const std::optional<int32_t> unk_id = vocabulary_.TokenToId(*unk_token_);
    if (!unk_id.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tokenizer.json: model.unk_token '", *unk_token_,
          "' is not in model.vocab, and the text has the unknown character '", bytes, "'"));
    }
    if (unknown != kNone && !fuse_unk_) ids.push_back(unknown);
    unknown = *unk_id;
  }
  if (unknown != kNone) ids.push_back(unknown);
  return ids;
}

void Bpe::MergeAll(std::vector<int32_t>* ids) const {
  const size_t count = ids->size();
  if (count < 2) return;
  std::vector<Symbol> symbols(count);
  for (size_t i = 0; i < count; ++i) {
    symbols[i] = {(*ids)[i], static_cast<int32_t>(i) - 1,
                  i + 1 < count ? static_cast<int32_t>(i) + 1 : -1, false};
  }
  std::vector<Candidate> storage;
  storage.reserve(count);
  for (size_t i = 0; i + 1 < count; ++i) {
    if (const Merge* merge = FindMerge((*ids)[i], (*ids)[i + 1])) {
      storage.push_back({merge->rank, static_cast<uint32_t>(i), merge->id});
    }
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(std::greater<>(),
                                                                               std::move(storage));
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& symbol = symbols[top.pos];
    if (symbol.gone || symbol.next < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(symbol.next)];
    // The pair may have changed since the candidate was found.
    const Merge* merge = FindMerge(symbol.id, right.id);
    if (merge == nullptr || merge->id != top.id) continue;
    symbol.id = top.id;
    symbol.next = right.next;
    right.gone = true;
    if (right.next >= 0) {
      symbols[static_cast<size_t>(right.next)].prev = static_cast<int32_t>(top.pos);
    }
    if (symbol.prev >= 0) {
      if (const Merge* m = FindMerge(symbols[static_cast<size_t>(symbol.prev)].id, symbol.id)) {
        queue.push({m->rank, static_cast<uint32_t>(symbol.prev), m->id});
      }
    }
    if (symbol.next >= 0) {
      if (const Merge* m = FindMerge(symbol.id, symbols[static_cast<size_t>(symbol.next)].id)) {
        queue.push({m->rank, top.pos, m->id});
      }
    }
  }
  size_t kept = 0;
  for (const Symbol& symbol : symbols) {
    if (!symbol.gone) (*ids)[kept++] = symbol.id;
  }
  ids->resize(kept);
}

absl::Status Bpe::Tokenize(absl::string_view piece, std::vector<int32_t>* ids) const {
  if (piece.empty()) return absl::OkStatus();
  if (piece.size() > kMaxPieceBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a word of ", piece.size(), " bytes; at most ",
                                                   kMaxPieceBytes, "; split the text"));
  }
  if (ignore_merges_) {
    if (const auto id = vocabulary_.TokenToId(piece)) {
      ids->push_back(*id);
      return absl::OkStatus();
    }
  }
  if (cache_.Lookup(piece, ids)) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::vector<int32_t> word, Characters(piece));
  MergeAll(&word);
  cache_.Insert(piece, word.data(), word.size());
  ids->insert(ids->end(), word.begin(), word.end());
  return absl::OkStatus();
}

}  // namespace tandem::tokenizer
