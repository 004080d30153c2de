// A tokenizer model that scores tokens: of all ways to split a piece it takes the one with the
// highest sum of scores.
#ifndef TANDEM_COMMON_TOKENIZER_UNIGRAM_H_
#define TANDEM_COMMON_TOKENIZER_UNIGRAM_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/json_node.h"
#include "common/tokenizer/model.h"
#include "common/tokenizer/prefix_trie.h"
#include "common/tokenizer/vocabulary.h"
#include "common/tokenizer/word_cache.h"

namespace tandem::tokenizer {

// Viterbi's algorithm: O(n m) for n bytes and tokens of at most m bytes. Thread-safe.
class Unigram : public Model {
 public:
  // Reads {"vocab": [["token", score], ...], "unk_id": ..., "byte_fallback": ...}.
  // InvalidArgument names the entry that is malformed or longer than 1024 bytes.
  static absl::StatusOr<std::unique_ptr<Model>> Read(const JsonNode& node);

  absl::Status Tokenize(absl::string_view piece, std::vector<int32_t>* ids) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  // The last token of the best path to a byte offset.
  struct Step {
    double score = 0;    // of the whole path
    int32_t begin = -1;  // of this token; -1 when no path leads here
    int32_t id = 0;
  };

  explicit Unigram(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  // `steps[i]` ends at byte i.
  absl::StatusOr<std::vector<Step>> BestPath(absl::string_view piece) const;
  // Appends the id of a token, or those of a run of unknown characters.
  void AppendRun(absl::string_view run, std::vector<int32_t>* ids) const;

  const Vocabulary vocabulary_;
  std::vector<double> scores_;  // [id]
  PrefixTrie trie_;
  std::optional<int32_t> unk_id_;
  double unk_score_ = 0;  // of one unknown character
  bool byte_fallback_ = false;
  std::array<int32_t, 256> byte_ids_;  // of "<0x..>", or -1
  WordCache cache_;
};

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_UNIGRAM_H_
