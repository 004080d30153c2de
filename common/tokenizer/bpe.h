// Byte-pair encoding with a table of ranked merges.
#ifndef TANDEM_COMMON_TOKENIZER_BPE_H_
#define TANDEM_COMMON_TOKENIZER_BPE_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/model.h"
#include "common/tokenizer/vocabulary.h"
#include "common/tokenizer/word_cache.h"

namespace tandem::tokenizer {

// Splits a word into characters, then merges the neighbouring pair with the lowest rank until no
// pair can merge: O(n log n) in the length of the word. Thread-safe.
class Bpe : public Model {
 public:
  // Reads the "model" of tokenizer.json.
  static absl::StatusOr<std::unique_ptr<Model>> Read(const JsonNode& node);

  absl::Status Tokenize(absl::string_view piece, std::vector<int32_t>* ids) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  struct Merge {
    uint32_t rank;
    int32_t id;  // of the merged token
  };

  explicit Bpe(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  absl::Status ReadMerges(const JsonNode& merges);
  void IndexCharacters();
  std::optional<int32_t> CharacterId(absl::string_view piece, size_t begin, size_t end) const;
  absl::StatusOr<std::vector<int32_t>> Characters(absl::string_view piece) const;
  void MergeAll(std::vector<int32_t>* ids) const;
  const Merge* FindMerge(int32_t left, int32_t right) const;

  const Vocabulary vocabulary_;
  absl::flat_hash_map<uint64_t, Merge> merges_;
  std::optional<std::string> unk_token_;
  std::string continuing_subword_prefix_;
  std::string end_of_word_suffix_;
  bool fuse_unk_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
  std::array<int32_t, 256> byte_ids_;         // of "<0x..>", or -1
  std::array<int32_t, 0x200> character_ids_;  // of the first code points, or -1
  WordCache cache_;
};

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_BPE_H_
