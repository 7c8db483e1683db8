/* kernels.c: the kernels, as PTX for compute capability 7.0, which the driver of every newer GPU compiles when it loads
 * them. Each has a module of its own, so that one that a driver refuses takes no other along. All take the same
 * parameters (percent, amount, out, words), of which a kernel declares those that it reads. */
#include "driver.h"

#include <string.h>

#define HEAD ".version 6.0\n.target sm_70\n.address_size 64\n"
#define PARAMETERS "(.param .u32 percent, .param .u32 amount, .param .u64 out, .param .u64 words)\n"

/* Busy for amount milliseconds on as many multiprocessors as there are blocks; each block writes which one it had. */
static const char load[] = HEAD
	".visible .entry load" PARAMETERS
	"{\n"
	"	.reg .pred %p<3>;\n	.reg .b32 %r<6>;\n	.reg .b64 %rd<7>;\n	.reg .f32 %f<3>;\n"
	"	ld.param.u32 %r1, [amount];\n"
	"	ld.param.u64 %rd1, [out];\n"
	"	mov.u64 %rd2, %globaltimer;\n"
	"	mul.wide.u32 %rd3, %r1, 1000000;\n"
	"	add.u64 %rd3, %rd2, %rd3;\n"
	"	mov.f32 %f1, 0f3F800000;\n"
	"	mov.u32 %r2, %tid.x;\n"
	"	setp.ne.u32 %p1, %r2, 0;\n"
	"	@%p1 bra WORK;\n"
	"	mov.u32 %r3, %ctaid.x;\n"
	"	mov.u32 %r4, %smid;\n"
	"	cvta.to.global.u64 %rd4, %rd1;\n"
	"	mul.wide.u32 %rd5, %r3, 4;\n"
	"	add.u64 %rd5, %rd4, %rd5;\n"
	"	st.global.u32 [%rd5], %r4;\n"
	"WORK:\n"
	"	fma.rn.f32 %f1, %f1, %f1, %f1;\n"
	"	fma.rn.f32 %f1, %f1, %f1, %f1;\n"
	"	fma.rn.f32 %f1, %f1, %f1, %f1;\n"
	"	fma.rn.f32 %f1, %f1, %f1, %f1;\n"
	"	mov.u64 %rd6, %globaltimer;\n"
	"	setp.lt.u64 %p2, %rd6, %rd3;\n"
	"	@%p2 bra WORK;\n"
	"	ret;\n"
	"}\n";

/* amount times 16 multiply-adds in each thread: work that does not touch memory. */
static const char compute[] = HEAD
	".visible .entry compute" PARAMETERS
	"{\n"
	"	.reg .pred %p<3>;\n	.reg .b32 %r<3>;\n	.reg .b64 %rd<3>;\n	.reg .f32 %f<6>;\n"
	"	ld.param.u32 %r1, [amount];\n"
	"	ld.param.u64 %rd1, [out];\n"
	"	mov.f32 %f1, 0f3F000000;\n	mov.f32 %f2, 0f3E800000;\n	mov.f32 %f3, 0f3E000000;\n	mov.f32 %f4, 0f3D800000;\n"
	"	mov.u32 %r2, 0;\n"
	"WORK:\n"
#define FOUR "	fma.rn.f32 %f1, %f1, %f2, %f3;\n	fma.rn.f32 %f2, %f2, %f3, %f4;\n	fma.rn.f32 %f3, %f3, %f4, %f1;\n	fma.rn.f32 %f4, %f4, %f1, %f2;\n"
	FOUR FOUR FOUR FOUR
	"	add.u32 %r2, %r2, 1;\n"
	"	setp.lt.u32 %p1, %r2, %r1;\n"
	"	@%p1 bra WORK;\n"
	"	add.f32 %f5, %f1, %f2;\n	add.f32 %f5, %f5, %f3;\n	add.f32 %f5, %f5, %f4;\n"
	"	setp.neu.f32 %p2, %f5, 0f7F7FFFFF;\n" /* never: so that the work is not optimised away */
	"	@%p2 bra END;\n"
	"	cvta.to.global.u64 %rd2, %rd1;\n"
	"	st.global.f32 [%rd2], %f5;\n"
	"END:\n"
	"	ret;\n"
	"}\n";

/* amount passes over a buffer of words 16-byte words, each read and written once in a pass. */
static const char stream[] = HEAD
	".visible .entry stream" PARAMETERS
	"{\n"
	"	.reg .pred %p<3>;\n	.reg .b32 %r<12>;\n	.reg .b64 %rd<9>;\n"
	"	ld.param.u32 %r1, [amount];\n"
	"	ld.param.u64 %rd1, [out];\n"
	"	ld.param.u64 %rd2, [words];\n"
	"	cvta.to.global.u64 %rd1, %rd1;\n"
	"	mov.u32 %r2, %ctaid.x;\n	mov.u32 %r3, %ntid.x;\n	mov.u32 %r4, %tid.x;\n	mov.u32 %r5, %nctaid.x;\n"
	"	mad.lo.u32 %r6, %r2, %r3, %r4;\n"
	"	cvt.u64.u32 %rd3, %r6;\n"
	"	mul.lo.u32 %r7, %r3, %r5;\n"
	"	cvt.u64.u32 %rd4, %r7;\n"
	"	mov.u32 %r8, 0;\n"
	"PASS:\n"
	"	mov.u64 %rd5, %rd3;\n"
	"WORD:\n"
	"	setp.ge.u64 %p1, %rd5, %rd2;\n"
	"	@%p1 bra NEXT;\n"
	"	shl.b64 %rd6, %rd5, 4;\n"
	"	add.u64 %rd6, %rd1, %rd6;\n"
	"	ld.global.v2.u64 {%rd7, %rd8}, [%rd6];\n"
	"	add.u64 %rd7, %rd7, 1;\n"
	"	st.global.v2.u64 [%rd6], {%rd7, %rd8};\n"
	"	add.u64 %rd5, %rd5, %rd4;\n"
	"	bra WORD;\n"
	"NEXT:\n"
	"	add.u32 %r8, %r8, 1;\n"
	"	setp.lt.u32 %p2, %r8, %r1;\n"
	"	@%p2 bra PASS;\n"
	"	ret;\n"
	"}\n";

static const char illegal_address[] = HEAD
	".visible .entry illegal_address" PARAMETERS
	"{\n	.reg .b64 %rd<2>;\n	mov.u64 %rd1, 16;\n	st.global.u32 [%rd1], 1;\n	ret;\n}\n";

static const char misaligned_address[] = HEAD
	".visible .entry misaligned_address" PARAMETERS
	"{\n	.reg .b64 %rd<3>;\n	ld.param.u64 %rd1, [out];\n	cvta.to.global.u64 %rd2, %rd1;\n	add.u64 %rd2, %rd2, 1;\n	st.global.u32 [%rd2], 1;\n	ret;\n}\n";

static const char launch_failed[] = HEAD
	".visible .entry launch_failed" PARAMETERS "{\n	trap;\n	ret;\n}\n";

/* What assert() of CUDA C++ comes to. */
static const char assert_[] = HEAD
	".extern .func __assertfail (.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);\n"
	".global .align 1 .b8 text[5] = {0x74, 0x72, 0x75, 0x65, 0x00};\n"
	".visible .entry assert" PARAMETERS
	"{\n"
	"	.reg .b64 %rd<4>;\n"
	"	mov.u64 %rd1, text;\n	cvta.global.u64 %rd2, %rd1;\n	mov.u64 %rd3, 1;\n"
	"	{\n"
	"	.param .b64 m;\n	st.param.b64 [m+0], %rd2;\n	.param .b64 f;\n	st.param.b64 [f+0], %rd2;\n"
	"	.param .b32 l;\n	st.param.b32 [l+0], 1;\n	.param .b64 n;\n	st.param.b64 [n+0], %rd2;\n	.param .b64 s;\n	st.param.b64 [s+0], %rd3;\n"
	"	call.uni __assertfail, (m, f, l, n, s);\n"
	"	}\n"
	"	ret;\n"
	"}\n";

const char *kernel_text(const char *name)
{
	static const struct { const char *name, *text; } all[] = {
		{ "load", load }, { "compute", compute }, { "stream", stream }, { "illegal_address", illegal_address },
		{ "misaligned_address", misaligned_address }, { "launch_failed", launch_failed }, { "assert", assert_ },
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (strcmp(all[i].name, name) == 0)
			return all[i].text;
	return NULL;
}
