// The "decoder" of tokenizer.json: decodes a stream of tokens to text.
//
// A decoder is a chain of stages. The reference runs each over the whole list of tokens; here a
// stage passes on text as soon as it is final, so that streams and lists share the same code and
// give the same text.
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

// One step of a decoder over one stream of tokens. Receives each token as any number of fragments,
// valid UTF-8 each, and an end. Single-threaded.
class DecodeStage {
 public:
  virtual ~DecodeStage() = default;
  virtual absl::Status Fragment(absl::string_view text) = 0;
  virtual absl::Status EndToken() = 0;
  // Ends the stream: no token follows.
  virtual absl::Status Finish() = 0;
};

// Makes the stage that feeds `next`, which must outlive it. Immutable, thread-safe.
class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  // `*pushed_bytes`, the stream's input size so far, bounds the stage's output.
  virtual std::unique_ptr<DecodeStage> Start(const size_t* pushed_bytes,
                                             DecodeStage* next) const = 0;
};

// Immutable; any thread may start streams.
class Decoder {
 public:
  // Supports ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, WordPiece, BPEDecoder and
  // Sequence; Unimplemented names others.
  static absl::StatusOr<Decoder> Read(const JsonNode& node);
  // The decoder of a tokenizer.json without one: joins tokens with spaces.
  static Decoder Joining();

  const std::vector<std::unique_ptr<DecodeStep>>& steps() const { return steps_; }

 private:
  static absl::Status ReadInto(const JsonNode& node, int depth, Decoder* out);

  std::vector<std::unique_ptr<DecodeStep>> steps_;
};

// Runs a stream of tokens through a decoder, which must outlive it. Single-threaded.
class DecodeStream {
 public:
  explicit DecodeStream(const Decoder& decoder);
  ~DecodeStream();
  DecodeStream(DecodeStream&&) noexcept;
  DecodeStream& operator=(DecodeStream&&) noexcept;

  // RESOURCE_EXHAUSTED names a rule that expands the tokens too much.
  absl::Status Push(absl::string_view token);
  absl::Status Finish();
  // Takes the text that is final so far, complete characters only.
  std::string TakeText();

 private:
  class Output;
  std::unique_ptr<size_t> pushed_bytes_;  // read by the stages
  std::unique_ptr<Output> output_;
  std::vector<std::unique_ptr<DecodeStage>> stages_;  // from the last to the first
};

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_DECODER_H_
