// The digest of a training step's samples (TrainStepHeader.samples_digest). It tells a retry of a
// step from another step with the same number.
//
//   rpc::SamplesDigest digest;
//   for (const common::v1::Sample& sample : samples) digest.Add(sample);
//   header.set_samples_digest(digest.Hex());
#ifndef TANDEM_COMMON_RPC_SAMPLES_DIGEST_H_
#define TANDEM_COMMON_RPC_SAMPLES_DIGEST_H_

#include <string>

#include "common/hash/hasher.h"
#include "tandem/common/v1/sample.pb.h"

namespace tandem::rpc {

// Single-threaded.
class SamplesDigest {
 public:
  void Add(const common::v1::Sample& sample);
  // Returns the digest of the samples added so far: 32 hexadecimal digits.
  std::string Hex() const { return hasher_.Hex(); }

 private:
  hash::Hasher hasher_;
  std::string buffer_;  // kept for its memory
};

}  // namespace tandem::rpc

#endif  // TANDEM_COMMON_RPC_SAMPLES_DIGEST_H_
