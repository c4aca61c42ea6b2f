#include "kernels/simd/avx2.h"

#include "kernels/ops/attention_vector.h"

namespace hyb::kernels::avx2 {

void attend_rows(const AttentionRows<float, float>& job) { attend_all(job); }
void attend_rows(const AttentionRows<float, bf16>& job) { attend_all(job); }
void attend_rows(const AttentionRows<bf16, float>& job) { attend_all(job); }
void attend_rows(const AttentionRows<bf16, bf16>& job) { attend_all(job); }
void attend_run(const AttentionRows<float, float>& job, std::int64_t run, float* records) {
  attend_keys_of_run(job, run, records);
}
void attend_run(const AttentionRows<float, bf16>& job, std::int64_t run, float* records) {
  attend_keys_of_run(job, run, records);
}
void attend_run(const AttentionRows<bf16, float>& job, std::int64_t run, float* records) {
  attend_keys_of_run(job, run, records);
}
void attend_run(const AttentionRows<bf16, bf16>& job, std::int64_t run, float* records) {
  attend_keys_of_run(job, run, records);
}
void merge_runs(const AttentionRows<float, float>& job, float* records, std::int64_t run_stride) {
  merge_all(job, records, run_stride);
}
void merge_runs(const AttentionRows<float, bf16>& job, float* records, std::int64_t run_stride) {
  merge_all(job, records, run_stride);
}
void merge_runs(const AttentionRows<bf16, float>& job, float* records, std::int64_t run_stride) {
  merge_all(job, records, run_stride);
}
void merge_runs(const AttentionRows<bf16, bf16>& job, float* records, std::int64_t run_stride) {
  merge_all(job, records, run_stride);
}

}  // namespace hyb::kernels::avx2
