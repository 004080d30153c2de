// Remembers the ids of recent words.
#ifndef TANDEM_COMMON_TOKENIZER_WORD_CACHE_H_
#define TANDEM_COMMON_TOKENIZER_WORD_CACHE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

namespace tandem::tokenizer {

// Holds at most kShards * kEntriesPerShard short words; clears a shard when it is full.
// Thread-safe; the shards' locks never nest.
class WordCache {
 public:
  // Appends the ids of `word` if it is known.
  bool Lookup(absl::string_view word, std::vector<int32_t>* ids) const;
  void Insert(absl::string_view word, const int32_t* ids, size_t count) const;

 private:
  static constexpr size_t kShards = 16;
  static constexpr size_t kEntriesPerShard = 2048;
  static constexpr size_t kMaxWordBytes = 128;
  struct Shard {
    absl::Mutex mu;
    absl::flat_hash_map<std::string, std::vector<int32_t>> ids ABSL_GUARDED_BY(mu);
  };
  Shard& ShardOf(absl::string_view word) const;
  mutable std::array<Shard, kShards> shards_;
};

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_WORD_CACHE_H_
