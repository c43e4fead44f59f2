
#ifdef SIMD
#define VECTORISE _Pragma("omp simd")
#define VECTORISE_SUM(s) _Pragma(TEXT(omp simd reduction(+:s)))
#define TEXT(x) #x
#else
#define VECTORISE
#define VECTORISE_SUM(s)
#endif
