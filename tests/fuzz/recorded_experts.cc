// The experts of tokens as a run's rollouts/*.jsonl has them, zstd in base64, and as an agent's recorded
// calls have them, which name each other's. The first byte says which of the two the rest is.
#include "tools/tandem/driver/recorded_experts.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "tandem/rollout/v1/rollout_service.pb.h"
#include "tools/tandem/driver/experts_text.h"

namespace {

using tandem::driver::ExpertsOfText;
using tandem::driver::ExpertsText;
using tandem::driver::RecordedExperts;
using tandem::rollout::v1::RecordedCall;

void ReadText(const std::string& text) {
  const auto bytes = ExpertsOfText(text);
  if (!bytes.ok()) return;
  const auto again = ExpertsOfText(ExpertsText(*bytes));
  if (!again.ok() || *again != *bytes) std::abort();
}

// Calls one after another, each behind two bytes with its length.
std::vector<RecordedCall> CallsOf(const std::string& input) {
  std::vector<RecordedCall> calls;
  for (size_t at = 0; at + 2 <= input.size();) {
    const size_t length = std::min<size_t>(
        static_cast<uint8_t>(input[at]) * 256u + static_cast<uint8_t>(input[at + 1]),
        input.size() - at - 2);
    RecordedCall call;
    // Others are refused before their experts are looked at.
    if (call.ParseFromString(input.substr(at + 2, length)) && call.token_ids_size() > 0) {
      calls.push_back(std::move(call));
    }
    at += 2 + length;
  }
  return calls;
}

void ReadCalls(const std::string& input) {
  const std::vector<RecordedCall> calls = CallsOf(input);
  const auto experts = RecordedExperts::Of(calls);
  if (!experts.ok() || experts->bytes_per_token() == 0) return;
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto all = experts->Of(static_cast<int>(i), 0);
    if (!all.ok()) continue;
    const auto num_tokens =
        static_cast<size_t>(calls[i].prompt_token_ids_size() + calls[i].token_ids_size());
    if (all->size() != num_tokens * experts->bytes_per_token()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string rest(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] % 2 == 0) {
    ReadText(rest);
  } else {
    ReadCalls(rest);
  }
  return 0;
}
