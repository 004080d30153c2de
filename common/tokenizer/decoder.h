// The "decoder" of tokenizer.json: from tokens back to text, as the tokens come.
//
// A decoder is a chain of stages. The reference runs each over the whole list of tokens; here a
// stage passes on what can no longer change, so that decoding a stream and decoding a list are the
// same code and give the same text.
#ifndef TANDEM_COMMON_TOKENIZER_DECODER_H_
#define TANDEM_COMMON_TOKENIZER_DECODER_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/tokenizer/json_node.h"

namespace tandem::tokenizer {

// One step of a decoder over one stream of tokens. A token arrives as any number of fragments,
// valid UTF-8 each, and an end. Single-threaded.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual absl::Status Fragment(absl::string_view text) = 0;
  virtual absl::Status EndToken() = 0;
  // No token follows.
  virtual absl::Status Finish() = 0;
};

// Makes the stage that feeds `next`, which must outlive it. Immutable, thread-safe.
class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  // `*pushed_bytes`, what the stream was given so far, bounds what the stage makes of it.
  virtual std::unique_ptr<DecodeStage> Start(const size_t* pushed_bytes,
                                             DecodeStage* next) const = 0;
};

// Immutable; any thread may start streams.
class Decoder {
 public:
  // ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace and Sequence; Unimplemented names
  // others.
  static absl::StatusOr<Decoder> Read(const JsonNode& node);
  // Without a decoder tokens are joined by spaces.
  static Decoder Joining();

  const std::vector<std::unique_ptr<DecodeStep>>& steps() const { return steps_; }

 private:
  static absl::Status ReadInto(const JsonNode& node, int depth, Decoder* out);

  std::vector<std::unique_ptr<DecodeStep>> steps_;
};

// A stream of tokens through a decoder, which must outlive it. Single-threaded.
class DecodeStream {
 public:
  explicit DecodeStream(const Decoder& decoder);
  ~DecodeStream();
  DecodeStream(DecodeStream&&) noexcept;
  DecodeStream& operator=(DecodeStream&&) noexcept;

  // RESOURCE_EXHAUSTED names a rule that makes too much of the tokens.
  absl::Status Push(absl::string_view token);
  absl::Status Finish();
  // Takes the text that is certain so far, complete characters only.
  std::string TakeText();

 private:
  class Output;
  std::unique_ptr<size_t> pushed_bytes_;  // the stages look at it
  std::unique_ptr<Output> output_;
  std::vector<std::unique_ptr<DecodeStage>> stages_;  // from the last to the first
};

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_DECODER_H_
