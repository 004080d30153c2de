#include "common/rpc/samples_digest.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <array>
#include <cstdint>
#include <cstdlib>

namespace tandem::rpc {
void SamplesDigest::Add(const common::v1::Sample& sample) {
  buffer_.clear();
  {
    google::protobuf::io::StringOutputStream stream(&buffer_);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    if (!sample.SerializeToCodedStream(&coded)) std::abort();  // more than 2 GiB
  }
  std::array<unsigned char, 8> length;
  for (size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<unsigned char>(static_cast<uint64_t>(buffer_.size()) >> (8 * i));
  }
  hasher_.Update(length.data(), length.size());
  hasher_.Update(buffer_);
}

}  // namespace tandem::rpc
